# demo 1.2.0 for neuron
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:neuron .
#
# Run:
#
#     docker run --rm --device=/dev/neuron0 --publish=8080:8080/tcp demo:neuron
#
# AWS Neuron: the runtime is in the base; the node gives only its kernel driver's /dev/neuron devices.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:392177ddb0da9eca8e1ce3a8b261e4fab25587838fa08f4256ab5039b006a684
USER 0:0

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:${PATH}" \
    VIRTUAL_ENV="/opt/venv" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="neuron" \
      dev.builder.lock="sha256:2861b458e2d9ed7b21ea1457099c8c9dc00b4df2896c52399c2b0fb09f418a38" \
      dev.builder.packages="{\"torch-neuronx\":\"2.9.0\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/neuron0 --publish=8080:8080/tcp" \
      dev.builder.toolkit="2.31.1" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:392177ddb0da9eca8e1ce3a8b261e4fab25587838fa08f4256ab5039b006a684" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
