#!/bin/bash
# Runs tests/engines: the plug-ins with the real engines, on CPUs. Installs what is missing into build/engines, or into the folder
# that ENGINES_FOLDER names (vllm and sglang in it, as tests/engines/install makes them), builds the Python package into vLLM's
# environment, and runs pytest there; its report is build/engines.junit. Words that are given are passed to pytest. Status 77: vLLM
# could not be installed; with CAIRN_REQUIRE_ALL that is a failure. Without SGLang its tests are skipped.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
export ENGINES_FOLDER=${ENGINES_FOLDER:-$PWD/build/engines}
vllm=$ENGINES_FOLDER/vllm

cairn_need build 'python?' && cairn_configure release || exit 1
rm -f build/engines.junit
if [ ! -f "$vllm/installed" ] && ! tests/engines/install/vllm.sh "$vllm"; then
  echo "the engines were not tested: vLLM could not be installed into $vllm"
  [ -z "${CAIRN_REQUIRE_ALL:-}" ] && exit 77
  exit 1
fi
if [ ! -f "$ENGINES_FOLDER/sglang/installed" ] && ! tests/engines/install/sglang.sh "$ENGINES_FOLDER/sglang"; then
  rm -rf "$ENGINES_FOLDER/sglang"
  [ -z "${CAIRN_REQUIRE_ALL:-}" ] || exit 1
fi
# shellcheck disable=SC1091
source "$vllm/env.sh"
CMAKE_BUILD_PARALLEL_LEVEL=$CAIRN_JOBS "$vllm/uv/bin/uv" pip install -q --python "$vllm/venv/bin/python" --no-build-isolation --no-deps \
  --reinstall-package cairn --config-settings build-dir=build/release . || exit 1
# The connector reads CAIRN_*, and takes no others than its keys.
unset CAIRN_JOBS CAIRN_REQUIRE_ALL CAIRN_OS_RELEASE
# Engines are mostly one thread each: two files of tests at a time.
python -m pytest -p no:cacheprovider -n 2 --dist loadfile --junit-xml build/engines.junit "${@:-tests/engines}"
