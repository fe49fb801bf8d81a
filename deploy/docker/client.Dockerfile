# The command `edl` and the Python API: submits and watches jobs.
# What is left in the last stage: Python, this package with what it needs, no compiler, no cache.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv --without-pip /opt/edl
COPY requirements.lock ./
COPY packages/ packages/
RUN python3 -m pip --python /opt/edl/bin/python install --no-cache-dir --no-compile \
      --disable-pip-version-check --root-user-action=ignore --constraint requirements.lock packages/proto packages/recordio packages/client
# Compiled here: what runs may write nothing. What is for other Pythons does not compile.
RUN /opt/edl/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/edl/lib \
      >/dev/null || true

FROM ${BASE}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:${PATH} HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["edl"]
CMD ["--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="edl-client" \
      org.opencontainers.image.description="The command edl: submits and watches jobs." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
