# A node with its engine: without root. Build from the repository's root:
#   docker build -f packaging/docker/node.Dockerfile -t brain-node .
#   docker run --gpus all --shm-size 1g -v brain-node:/var/lib/brain-node \
#       --mount type=bind,src=$PWD/token,dst=/run/token,ro brain-node join https://coordinator.example --token-file /run/token
# Not needed to lend a machine: `pip install brain-node` does the same without a container.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY brain_node ./brain_node
COPY brain_coord ./brain_coord
RUN python -m venv /opt/brain \
    && /opt/brain/bin/pip install --no-cache-dir --disable-pip-version-check -c requirements.lock ".[hub]"

FROM python:3.11-slim
# The engine compiles small kernels when it starts.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10002 --create-home --home-dir /var/lib/brain-node brain \
    && chmod 0700 /var/lib/brain-node
COPY --from=build /opt/brain /opt/brain
ENV PATH=/opt/brain/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BRAIN_NODE_DATA_DIR=/var/lib/brain-node \
    BRAIN_NODE_ENGINES_DIR=/opt/engines \
    HF_HOME=/var/lib/brain-node/hub
# cuda or cpu; the driver's library comes from the container runtime.
ARG FLAVOUR=cuda
RUN mkdir -p /opt/engines && brain-node engine install --${FLAVOUR} && rm -rf /root/.cache
USER 10002:10002
VOLUME /var/lib/brain-node
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["brain-node", "status", "--json"]
ENTRYPOINT ["brain-node"]
CMD ["join"]
