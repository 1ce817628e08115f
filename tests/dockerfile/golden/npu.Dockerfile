# demo 1.2.0 for npu
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:npu .
#
# Run:
#
#     docker run --rm --device=/dev/davinci0 --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc --volume=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64:ro --volume=/usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info:ro --volume=/usr/local/dcmi:/usr/local/dcmi:ro --volume=/usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro --volume=/etc/ascend_install.info:/etc/ascend_install.info:ro --publish=8080:8080/tcp demo:npu
#
# Ascend: CANN is in the base, the driver's libraries are mounted from the node; the entrypoint reads CANN's set_env.sh
# first.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:6d95c0b5572374346c793fecb2de0da92123ec46fdf00166e5b3a1f800e4f1a5
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
      dev.builder.backend="npu" \
      dev.builder.lock="sha256:50929c5faab2edfe248db96ed29c373b947dd95f09b404738c7d91f41e31ae28" \
      dev.builder.packages="{\"torch\":\"2.13.0+cpu\",\"torch-npu\":\"2.13.0\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --device=/dev/davinci0 --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc --volume=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64:ro --volume=/usr/local/Ascend/driver/version.info:/usr/local/Ascend/driver/version.info:ro --volume=/usr/local/dcmi:/usr/local/dcmi:ro --volume=/usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro --volume=/etc/ascend_install.info:/etc/ascend_install.info:ro --publish=8080:8080/tcp" \
      dev.builder.toolkit="9.1.0" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:6d95c0b5572374346c793fecb2de0da92123ec46fdf00166e5b3a1f800e4f1a5" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["/bin/sh", "-c", "for f in '/usr/local/Ascend/ascend-toolkit/set_env.sh'; do if [ -e \"$f\" ]; then . \"$f\"; else echo \"builder: $f is missing\" >&2; fi; done; exec \"$@\"", "builder-setup", "python", "-m", "demo"]
CMD ["--port", "8080"]
