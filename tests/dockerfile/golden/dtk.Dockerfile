# demo 1.2.0 for dtk
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:dtk .
#
# Run:
#
#     docker run --rm --device=/dev/kfd --device=/dev/mkfd --device=/dev/dri --volume=/opt/hyhal:/opt/hyhal:ro --publish=8080:8080/tcp demo:dtk
#
# Hygon: DTK is in the base under /opt/dtk, and its env.sh is read first; /opt/hyhal is mounted from the node. AMD's images do
# not work here although /dev/kfd has the same name.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:7de49f20cd62ca2ee6878557c754d8ebcf361bbd38191aa74ea64eaca3f16d4f
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
      dev.builder.backend="dtk" \
      dev.builder.lock="sha256:1d1aac2501e8d259e12b6307f95e4f03079fa360f47c7e6605a09ec49445f116" \
      dev.builder.packages="{\"torch\":\"2.10.0+das.dtk2604\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/kfd --device=/dev/mkfd --device=/dev/dri --volume=/opt/hyhal:/opt/hyhal:ro --publish=8080:8080/tcp" \
      dev.builder.toolkit="26.04" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:7de49f20cd62ca2ee6878557c754d8ebcf361bbd38191aa74ea64eaca3f16d4f" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["/bin/sh", "-c", "for f in '/opt/dtk/env.sh'; do if [ -e \"$f\" ]; then . \"$f\"; else echo \"builder: $f is missing\" >&2; fi; done; exec \"$@\"", "builder-setup", "python", "-m", "demo"]
CMD ["--port", "8080"]
