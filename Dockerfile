# SPDX-License-Identifier: Apache-2.0
# Build with deploy/build-image.sh. Both bases need glibc and the same Python 3.11 or newer at the same path; the one for
# building also needs pip. Pin BASE by digest (name@sha256:...) for a build that can be repeated.
ARG BASE=python:3.13-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
ARG PIP_INDEX_URL
# A fixed hash seed: byte code holds sets in the order of their hashes.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
WORKDIR /src
COPY requirements.lock requirements-dev.lock ./
# Everything is installed from the lock files with hashes, as wheels; the build backend's lines are picked out of the
# development lock.
RUN python3 -m venv --without-pip /opt/rdma-plugin \
 && python3 -m venv --without-pip /build \
 && awk '/^[a-z]/ { wanted = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } wanted' \
      requirements-dev.lock > build.lock \
 && python3 -m pip --python /build install --require-hashes --only-binary :all: -r build.lock \
 && python3 -m pip --python /opt/rdma-plugin install --no-compile --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY rdma_plugin rdma_plugin
# Byte code that is never compared with a file's time stays valid in any image and needs no writable file system.
RUN /build/bin/python -m hatchling build -t wheel -d /dist \
 && python3 -m pip --python /opt/rdma-plugin install --no-compile --no-deps --no-index /dist/*.whl \
 && find /opt/rdma-plugin -type d -name tests -prune -exec rm -r {} + \
 && python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/rdma-plugin

FROM ${BASE} AS base
ENV PYTHONHASHSEED=0
# What installs software isn't needed any more; the rest of the standard library gets its byte code.
RUN stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && for part in ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo site-packages/pip site-packages/pip-*; do \
      rm -rf "$stdlib/"$part; \
    done \
 && rm -rf /usr/local/bin/pip* /var/lib/apt/lists/* /var/cache/apt/* \
 && python3 -m compileall -q -f --invalidation-mode unchecked-hash "$stdlib"

# From scratch, so that what was removed isn't in a lower layer.
FROM scratch
ARG VERSION
LABEL org.opencontainers.image.title="rdma-plugin" \
      org.opencontainers.image.description="Kubernetes device plugin that shares a node's RDMA devices between pods" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=base / /
COPY --from=build /opt/rdma-plugin /opt/rdma-plugin
ENV PATH=/opt/rdma-plugin/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# uid 0, for which deploy/base drops every capability: the kubelet's directories and a PCI device's `vpd` belong to root.
USER 0:0
# An image that can't start isn't built.
RUN ["rdma-plugin", "--version"]
ENTRYPOINT ["rdma-plugin"]
CMD ["run"]
