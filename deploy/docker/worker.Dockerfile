# The worker, and the usual base of the images that the builder makes: it has pip, and no
# entrypoint; and the master, so that a whole job can run in containers of one image.
# EXTRA chooses TensorFlow: cpu, gpu (with CUDA's libraries), or empty for none.
# What is left in the last stage: Python, this package with what it needs, no compiler, no cache.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
ARG EXTRA=cpu
RUN python3 -m venv --without-pip /opt/edl
COPY requirements.lock ./
COPY packages/ packages/
# setuptools: pip needs it for packages that have no wheel.
RUN python3 -m pip --python /opt/edl/bin/python install --no-cache-dir --no-compile \
      --disable-pip-version-check --root-user-action=ignore --constraint requirements.lock \
      packages/proto packages/recordio packages/master "packages/worker${EXTRA:+[${EXTRA}]}" \
      pip setuptools wheel
# Compiled here: what runs may write nothing. What is for other Pythons does not compile.
RUN /opt/edl/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/edl/lib \
      >/dev/null || true

FROM ${BASE}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:${PATH} HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["python3", "-m", "edl_worker", "--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="edl-worker" \
      org.opencontainers.image.description="Loads the model file, leases tasks, trains, evaluates and predicts." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
