# demo 1.2.0 for mlu
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:mlu .
#
# Run:
#
#     docker run --rm --device=/dev/cambricon_dev0 --device=/dev/cambricon_ctl --volume=/usr/bin/cnmon:/usr/bin/cnmon:ro --publish=8080:8080/tcp demo:mlu
#
# Cambricon: the toolkit is in the base under /usr/local/neuware/lib64, which the base has on LD_LIBRARY_PATH; the node gives
# its driver, the devices and cnmon. Some drivers have /dev/cambricon_ipcm0 too.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:2c5263e2f92617b15bdd9f38e1a5ee2307ea2ee968a65e7b7958fa51b4c0e5a8
USER 0:0

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:${PATH}" \
    VIRTUAL_ENV="/opt/venv" \
    NEUWARE_HOME="/usr/local/neuware" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="mlu" \
      dev.builder.lock="sha256:cf4b21932fee9aabd4dcb8d027bc311ab42441d4bdba4c07c8e2f888a8b53528" \
      dev.builder.packages="{\"torch\":\"2.4.0+cpu\",\"torch-mlu\":\"1.22.0+torch2.4.0\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/cambricon_dev0 --device=/dev/cambricon_ctl --volume=/usr/bin/cnmon:/usr/bin/cnmon:ro --publish=8080:8080/tcp" \
      dev.builder.toolkit="2.15" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:2c5263e2f92617b15bdd9f38e1a5ee2307ea2ee968a65e7b7958fa51b4c0e5a8" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
