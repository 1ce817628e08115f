# demo 1.2.0 for maca
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:maca .
#
# Run:
#
#     docker run --rm --device=/dev/mxcd --device=/dev/mxnd --device=/dev/mxgd --device=/dev/dri --volume=/opt/mxdriver:/opt/mxdriver:ro --publish=8080:8080/tcp demo:maca
#
# MetaX: MACA is in the base under /opt/maca, with libraries spelled like CUDA's (cu-bridge); the driver comes from the node.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:12a384f90fbeb4530a79a562f66440d0af2d74d23858d54314f4540c1db6e99c
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
      dev.builder.backend="maca" \
      dev.builder.lock="sha256:9257f2bad8da15638eae6372387324ce3f9c0c554a8c4eb1b1de7e803e9e933f" \
      dev.builder.packages="{\"torch\":\"2.8.0+metax3.7.1.3\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/mxcd --device=/dev/mxnd --device=/dev/mxgd --device=/dev/dri --volume=/opt/mxdriver:/opt/mxdriver:ro --publish=8080:8080/tcp" \
      dev.builder.toolkit="3.7" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:12a384f90fbeb4530a79a562f66440d0af2d74d23858d54314f4540c1db6e99c" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
