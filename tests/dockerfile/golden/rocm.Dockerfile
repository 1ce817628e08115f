# demo 1.2.0 for rocm
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:rocm .
#
# Run:
#
#     docker run --rm --device=/dev/kfd --device=/dev/dri --group-add="$(getent group video | cut -d: -f3)" --group-add="$(getent group render | cut -d: -f3)" --publish=8080:8080/tcp demo:rocm
#
# AMD: ROCm's user space is in the wheels; the node gives /dev/kfd, /dev/dri and the groups that own them. The groups are
# given by number, because their names differ between node and image.

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
      dev.builder.backend="rocm" \
      dev.builder.lock="sha256:4da8f5afd6dfa7e2a2800dcebe9b5059eee30477b545fb76748b79d9360cd26e" \
      dev.builder.packages="{\"numpy\":\"2.3.5\",\"torch\":\"2.13.0+rocm7.2\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/kfd --device=/dev/dri --group-add=\"\$(getent group video | cut -d: -f3)\" --group-add=\"\$(getent group render | cut -d: -f3)\" --publish=8080:8080/tcp" \
      dev.builder.toolkit="7.2" \
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
