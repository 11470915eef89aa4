#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the container image with docker or buildah, whichever works here; arguments go to it as they are.
# Environment: TAG (default rdma-plugin:VERSION), BASE and BUILD_BASE (see Dockerfile), BUILDER (docker or buildah),
# PIP_INDEX_URL (a package index of your own; it doesn't end up in the image).
set -eu
cd "$(dirname "$0")/.."

fail() {
  echo "build-image: $1" >&2
  exit 1
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -n "$version" ] || fail "no version in pyproject.toml"
tag=${TAG:-rdma-plugin:$version}

builder=${BUILDER:-}
if [ -z "$builder" ]; then
  if docker info >/dev/null 2>&1; then
    builder=docker
  elif command -v buildah >/dev/null 2>&1; then
    builder=buildah
  else
    fail "neither a running docker nor buildah is here; install one of them"
  fi
fi

set -- --build-arg "VERSION=$version" --file Dockerfile --tag "$tag" "$@"
for name in BASE BUILD_BASE PIP_INDEX_URL; do
  value=$(printenv "$name" || true)
  [ -z "$value" ] || set -- "$@" --build-arg "$name=$value"
done

case $builder in
  docker) docker build "$@" . ;;
  # A layer for each step, and the time of the commit in place of that of the build: equal input gives equal layers.
  buildah) buildah build --layers --timestamp "$(git log -1 --format=%ct 2>/dev/null || echo 0)" "$@" . ;;
  *) fail "BUILDER is docker or buildah, not $builder" ;;
esac
echo "build-image: built $tag with $builder"
