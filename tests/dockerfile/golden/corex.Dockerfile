# demo 1.2.0 for corex
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:corex .
#
# Run:
#
#     docker run --rm --device=/dev/itrctl --device=/dev/iluvatar0 --publish=8080:8080/tcp demo:corex
#
# Iluvatar: CoreX is in the base, with libraries spelled like CUDA's; the node gives its driver's devices.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:5a52a5551829eda0c40f024c1c00379db6e8fcc6093818fee4f93765b8246b99
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
      dev.builder.backend="corex" \
      dev.builder.lock="sha256:cb5d0a8b02f218e828b2b05b03c311664d3e7bd0170f4f373651c9839bd15312" \
      dev.builder.packages="{\"torch\":\"2.4.1+corex.4.2.0\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/itrctl --device=/dev/iluvatar0 --publish=8080:8080/tcp" \
      dev.builder.toolkit="4.2" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:5a52a5551829eda0c40f024c1c00379db6e8fcc6093818fee4f93765b8246b99" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
