# demo 1.2.0 for xpu
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:xpu .
#
# Run:
#
#     docker run --rm --device=/dev/dri --group-add="$(getent group render | cut -d: -f3)" --publish=8080:8080/tcp demo:xpu
#
# Intel: oneAPI's libraries are wheels; the node gives /dev/dri and the group that owns the render nodes.

# debian:bookworm, sha256:b9d895919af56c3fc44d85ed80b9486d14e32354fca7fabe3d09da2b37947d32; `builder build --engine docker` loads it
FROM localhost/builder/base:debian-bookworm-b9d895919af56c3f

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    VIRTUAL_ENV="/opt/venv" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="xpu" \
      dev.builder.lock="sha256:def29a81d221dd04ec3d641b69ac2925949d67eb52d80d5d239c48b84e21db6c" \
      dev.builder.packages="{\"torch\":\"2.13.0+xpu\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/dri --group-add=\"\$(getent group render | cut -d: -f3)\" --publish=8080:8080/tcp" \
      dev.builder.toolkit="2026.2" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.name="debian:bookworm" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
