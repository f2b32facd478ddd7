#!/bin/bash
# Installs the Python package into build/python-venv from the tree build/release, and runs its tests there; pytest's report is
# build/python.junit. Words that are given are passed to pytest. Status 77: the system has no venv, no headers of Python, or pip
# could not fetch what scripts/python-requirements.txt names; with CAIRN_REQUIRE_ALL that is a failure.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
venv=$PWD/build/python-venv

missing() {
  rm -rf "$venv"
  echo "the Python package was not tested: $1"
  [ -z "${CAIRN_REQUIRE_ALL:-}" ] && exit 77
  exit 1
}

cairn_need build 'python?' && cairn_configure release || exit 1
rm -f build/python.junit
if ! cmp -s scripts/python-requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv" || missing "python3 makes no virtual environment; install python3-venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r scripts/python-requirements.txt ||
    missing "pip could not install what scripts/python-requirements.txt names"
  cp scripts/python-requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
  missing "Python.h is missing; install python3-dev"

# The tree of the release stage, so that the library is compiled once; the preset's options stay as they are.
CMAKE_BUILD_PARALLEL_LEVEL=$CAIRN_JOBS "$venv/bin/pip" install -q --disable-pip-version-check --no-build-isolation --no-deps \
  --force-reinstall --config-settings build-dir=build/release . || exit 1
"$venv/bin/python" -m pytest -p no:cacheprovider --junit-xml build/python.junit "$@"
