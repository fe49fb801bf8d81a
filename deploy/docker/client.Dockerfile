# The command `edl` and the Python API: submits and watches jobs.
# What is left in the last stage: Python, this package with what it needs, no compiler, no cache.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
ENV PYTHONDONTWRITEBYTECODE=1
# Every package is of the lock, with its hash, and so is what builds our own.
RUN python3 -m venv --without-pip /opt/edl && python3 -m venv --without-pip /opt/build
COPY locks/ locks/
RUN for each in build:build edl:client; do \
      python3 -m pip --python /opt/${each%%:*}/bin/python install --no-cache-dir --no-compile --no-deps \
        --disable-pip-version-check --root-user-action=ignore --require-hashes --only-binary=:all: \
        --requirement locks/${each#*:}.lock || exit 1; \
    done
# Compiled here: what runs may write nothing. What is for other Pythons does not compile. All of it
# anew, and nothing by itself: that would have the time of its source in it.
RUN /opt/edl/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/edl/lib \
      >/dev/null || true
# All of one time, so that equal sources make equal layers.
ARG SOURCE_DATE_EPOCH=315532800
RUN mkdir -p /dependencies/opt && cp -a /opt/edl /dependencies/opt/edl \
 && find /dependencies -exec touch --no-dereference --date=@${SOURCE_DATE_EPOCH} {} +
# edl itself has a layer of its own, so that a change of it moves nothing else.
COPY packages/ packages/
RUN for each in packages/proto packages/runtime packages/recordio packages/client packages/convert packages/watch packages/registry packages/images packages/kubernetes packages/sql; do \
      /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --no-cache-dir \
        --disable-pip-version-check --wheel-dir /opt/wheels ./$each || exit 1; \
    done \
 && python3 -m pip --python /opt/edl/bin/python install --no-compile --no-deps --no-index --root /image \
      --disable-pip-version-check --root-user-action=ignore /opt/wheels/*.whl \
 && /opt/edl/bin/python -m compileall -q -s /image --invalidation-mode unchecked-hash /image/opt/edl/lib
COPY sbom.py ./
RUN mkdir -p /image/usr/share/edl /image/work && cp -a /image/opt/edl/. /opt/edl/ \
 && /opt/edl/bin/python -B sbom.py /image/usr/share/edl/sbom.cdx.json \
 && find /image -exec touch --no-dereference --date=@${SOURCE_DATE_EPOCH} {} +

FROM ${BASE}
COPY --from=build /dependencies/ /
COPY --from=build /image/ /
ENV PATH=/opt/edl/bin:${PATH} HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
# It is there already: a folder that this step makes would have a time of its own.
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
