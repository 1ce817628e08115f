# demo 1.2.0 for cpu
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:cpu .
#
# Run:
#
#     docker run --rm --publish=8080:8080/tcp demo:cpu
#
# CPU: everything the service needs is in the image; nothing comes from the node.

# debian:bookworm, sha256:b9d895919af56c3fc44d85ed80b9486d14e32354fca7fabe3d09da2b37947d32; `builder build --engine docker` loads it
FROM localhost/builder/base:debian-bookworm-b9d895919af56c3f AS environment

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
COPY install.py wheels.json /mnt/
COPY wheels/ /mnt/wheels/
RUN ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

FROM localhost/builder/base:debian-bookworm-b9d895919af56c3f
COPY --from=environment /opt/venv/ /opt/venv/

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    VIRTUAL_ENV="/opt/venv" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="cpu" \
      dev.builder.lock="sha256:7db3e4c5f1ba4bdb472fcdb156058e1999ba311a25a1260f42da3405930dda17" \
      dev.builder.packages="{\"numpy\":\"2.3.5\",\"onnxruntime\":\"1.23.2\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --publish=8080:8080/tcp" \
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
