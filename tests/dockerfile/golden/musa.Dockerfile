# demo 1.2.0 for musa
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:musa .
#
# Run:
#
#     docker run --rm --device=/dev/dri --device=/dev/mtgpu.0 --publish=8080:8080/tcp demo:musa
#
# MUSA: the toolkit is in the base under /usr/local/musa, libmusa.so.1 comes from the node through Moore Threads' own
# container runtime, which also reads MTHREADS_VISIBLE_DEVICES.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:36b9016a041927bd4b68e14f5910a3553e29598d223279c2f0deeeb1921445a0
USER 0:0

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:${PATH}" \
    VIRTUAL_ENV="/opt/venv" \
    MTHREADS_VISIBLE_DEVICES="all" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="musa" \
      dev.builder.lock="sha256:2410e284c8f9b3f00edeb1471c97d7a1f6b9a2b50a5942a6b58956c31f640056" \
      dev.builder.packages="{\"torch\":\"2.7.1+musa.4.0.0\",\"torch-musa\":\"2.7.1\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/dri --device=/dev/mtgpu.0 --publish=8080:8080/tcp" \
      dev.builder.toolkit="4.3.2" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:36b9016a041927bd4b68e14f5910a3553e29598d223279c2f0deeeb1921445a0" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
