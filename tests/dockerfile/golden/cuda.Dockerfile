# demo 1.2.0 for cuda
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:cuda .
#
# Run:
#
#     docker run --rm --gpus=all --publish=8080:8080/tcp demo:cuda
#
# NVIDIA: the toolkit's libraries are wheels; libcuda.so.1 and nvidia-smi come from the node's driver, brought in by the
# NVIDIA container runtime, which reads the NVIDIA_ variables below.

# debian:bookworm, sha256:b9d895919af56c3fc44d85ed80b9486d14e32354fca7fabe3d09da2b37947d32; `builder build --engine docker` loads it
FROM localhost/builder/base:debian-bookworm-b9d895919af56c3f

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    VIRTUAL_ENV="/opt/venv" \
    NVIDIA_DRIVER_CAPABILITIES="compute,utility" \
    NVIDIA_REQUIRE_CUDA="cuda>=13.0" \
    NVIDIA_VISIBLE_DEVICES="all" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="cuda" \
      dev.builder.lock="sha256:930fbc41b086d75c9dc285bdb1b67ddffe8d255d9e5a2a38f38c3c63d24bd4c4" \
      dev.builder.packages="{\"numpy\":\"2.3.5\",\"torch\":\"2.13.0\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --gpus=all --publish=8080:8080/tcp" \
      dev.builder.toolkit="13.0" \
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
