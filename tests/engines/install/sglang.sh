#!/bin/bash
# sglang.sh FOLDER: an SGLang that runs on a machine without a GPU, for tests/engines/sglang.
#
# Makes FOLDER/vt (a virtual environment without SGLang's GPU packages; 1.9 GB with all the rest), FOLDER/stubs (empty CUDA
# libraries), FOLDER/tiny and FOLDER/mla (random models) and FOLDER/env.sh, to be sourced before its Python is started. Takes
# a minute or two and needs gcc, g++, nm, the headers of OpenSSL, and access to PyPI.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: sglang.sh FOLDER}
for tool in gcc g++ nm python3; do
  command -v $tool >/dev/null || { echo "sglang.sh: $tool is missing; install gcc, g++, binutils and python3" >&2; exit 1; }
done
mkdir -p "$folder"
cd "$folder"

[ -x uvenv/bin/uv ] || { python3 -m venv uvenv && uvenv/bin/pip install -q --disable-pip-version-check uv; }
uvenv/bin/uv venv -q --clear --python 3.11 vt
uvenv/bin/uv pip install -q --compile-bytecode --python vt/bin/python --excludes "$here/sglang-excludes.txt" \
  sglang==0.5.23 torch==2.14.1 torchvision==0.29.2 transformers==5.19.0 dill==0.4.1
uvenv/bin/uv pip install -q --compile-bytecode --python vt/bin/python --no-deps nvidia-cuda-runtime==13.0.96

packages=$PWD/vt/lib/python3.11/site-packages
# installed NAME VERSION: the metadata of a package that lies in site-packages
installed() {
  mkdir -p "$packages/$1-$2.dist-info"
  printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$1" "$2" >"$packages/$1-$2.dist-info/METADATA"
  echo cairn >"$packages/$1-$2.dist-info/INSTALLER"
  : >"$packages/$1-$2.dist-info/RECORD"
}
mkdir -p "$packages/triton"
cp "$here/triton_stand_in.py" "$packages/triton/__init__.py"
installed triton 3.8.0
cp "$here/sglang_cpu.py" "$packages/"
installed sglang_cpu 1.0
printf '[sglang.srt.plugins]\nsglang_cpu = sglang_cpu:install\n' >"$packages/sglang_cpu-1.0.dist-info/entry_points.txt"
python3 "$here/make_stubs.py" "$packages/torch/lib" stubs

cat >env.sh <<'END'
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$folder/stubs:$folder/vt/lib/python3.11/site-packages/nvidia/cu13/lib
export PATH=$folder/vt/bin:$PATH
export HF_HUB_OFFLINE=1 DO_NOT_TRACK=1 OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 PYTHONWARNINGS=ignore
export TORCH_EXTENSIONS_DIR=$folder/ext
export SGLANG_NCCL_SO_PATH=none.so # the stub would crash
END
. ./env.sh
python "$here/make_tiny.py" .
# SGLang compiles its page hash at the first request, which would time out behind it.
python -c "from sglang.srt.mem_cache.cpp_utils.native_hash import get_native_hash; get_native_hash([1, 2, 3, 4], None, 2)"
touch installed
