# The coordinator: slim, without root. Build from the repository's root:
#   docker build -f packaging/docker/coordinator.Dockerfile -t brain-coord .
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY brain_node ./brain_node
COPY brain_coord ./brain_coord
RUN python -m venv /opt/brain \
    && /opt/brain/bin/pip install --no-cache-dir --disable-pip-version-check -c requirements.lock ".[coord,cluster]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/brain-coord brain \
    && chmod 0700 /var/lib/brain-coord
COPY --from=build /opt/brain /opt/brain
ENV PATH=/opt/brain/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BRAIN_COORD_DATA_DIR=/var/lib/brain-coord
USER 10001:10001
VOLUME /var/lib/brain-coord
EXPOSE 8470
# SIGTERM drains: streams may end, receipts are written.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8470/healthz', timeout=4)"]
ENTRYPOINT ["brain-coord"]
CMD ["serve", "--host", "0.0.0.0"]
