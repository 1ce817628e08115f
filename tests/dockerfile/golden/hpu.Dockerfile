# demo 1.2.0 for hpu
#
# Made by `builder dockerfile`: change builder.toml or the lock, not this file. Build it in a folder that holds the
# context (install.py, wheels.json, wheels/, application/), without a network:
#
#     DOCKER_BUILDKIT=1 docker build --network=none --tag demo:hpu .
#
# Run:
#
#     docker run --rm --runtime=habana --cap-add=sys_nice --publish=8080:8080/tcp demo:hpu
#
# Gaudi: the libraries are in the base under /usr/lib/habanalabs; the habana runtime brings the node's devices. The node's
# driver is of the same release as the base. For collectives over several nodes add --network=host to the run line.

# registry.example.org/vendor/base:1.0
FROM registry.example.org/vendor/base@sha256:d00da3ed27d567c1d4a58b6d3181ed796366f77e8957d7881adf200f13a5c0ee
USER 0:0

# The audited wheels, by hash, with the installer of the other engines: no index, no network, no shell.
RUN --mount=type=bind,target=/mnt ["/usr/bin/python3.11", "-I", "-S", "-B", "/mnt/install.py", "--target", "/opt/venv", "--python", "3.11", "--base-python", "/usr/bin/python3.11", "--wheels", "/mnt/wheels.json"]

# The application's own files, at their places.
COPY ["application/0/files", "/app/demo"]

ENV PATH="/opt/venv/bin:${PATH}" \
    VIRTUAL_ENV="/opt/venv" \
    HABANA_VISIBLE_DEVICES="all" \
    OMPI_MCA_btl_vader_single_copy_mechanism="none" \
    DEMO_GREETING="cost \$5, \"really\" \\o/" \
    PYTHONUNBUFFERED="1"

LABEL com.example.team="platform" \
      dev.builder.backend="hpu" \
      dev.builder.lock="sha256:99675f12c0acfab87bc4de5468d15a322dead37cfc957772f8e7822f469d8136" \
      dev.builder.packages="{\"habana-torch-plugin\":\"1.23.0.695\",\"torch\":\"2.9.0+hpu.1.23.0.695\"}" \
      dev.builder.python="3.11" \
      dev.builder.run="docker run --rm --runtime=habana --cap-add=sys_nice --publish=8080:8080/tcp" \
      dev.builder.toolkit="1.23.0" \
      dev.builder.warmup="{\"command\":[\"python\",\"-m\",\"demo\",\"--once\"],\"timeout\":60}" \
      org.opencontainers.image.base.digest="sha256:d00da3ed27d567c1d4a58b6d3181ed796366f77e8957d7881adf200f13a5c0ee" \
      org.opencontainers.image.base.name="registry.example.org/vendor/base:1.0" \
      org.opencontainers.image.description="Says \"hello\" for \$5." \
      org.opencontainers.image.title="demo" \
      org.opencontainers.image.version="1.2.0"

WORKDIR /app
EXPOSE 8080/tcp
USER 10001:10001
ENTRYPOINT ["python", "-m", "demo"]
CMD ["--port", "8080"]
