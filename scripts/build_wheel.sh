#!/bin/bash
# build_wheel.sh [--test] [FOLDER]: builds a wheel of the Python package that needs only glibc and libstdc++, puts it into
# FOLDER (dist/ by default), and tries it in a fresh virtual environment of each Python that it finds, without a compiler on the
# path. --test also runs python/tests in each. PYTHONS names other Pythons than those of pyenv and the system's.
#
# The wheel is tagged with the oldest glibc that has all symbols it needs, and has the kernels for GPUs.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
runs_tests=0
if [ "${1:-}" = --test ]; then
  runs_tests=1
  shift
fi
out=$(realpath -m "${1:-dist}")
mkdir -p build
cairn_need build 'pip?' 'python?' || exit 1
cairn_fetch_nvcc
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}
# requirements GREP_OPTION PATTERN: lines of scripts/python-requirements.txt, by the names of packages.
requirements() { grep -v '^#' scripts/python-requirements.txt | grep "$1" "^($2)=="; }

python3 -m venv "$scratch/build" || fail "python3 makes no virtual environment; install python3-venv"
requirements -E 'nanobind|nanobind-backend|scikit-build-core|typing-extensions' >"$scratch/build.txt"
echo wheel==0.48.0 >>"$scratch/build.txt"
"$scratch/build/bin/pip" install -q --disable-pip-version-check -r "$scratch/build.txt"
CMAKE_BUILD_PARALLEL_LEVEL=$CAIRN_JOBS "$scratch/build/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation \
  --no-deps --config-settings build-dir=build/wheel --config-settings cmake.define.CAIRN_STATIC=ON \
  --config-settings cmake.define.CAIRN_BATCHES=ON -w "$scratch/wheel" .

# What it needs of the system, of the module and of the command.
mkdir "$scratch/files"
python3 -m zipfile -e "$scratch"/wheel/*.whl "$scratch/files"
mapfile -t programs < <(find "$scratch/files" -name '*.so' -o -path '*/scripts/cairn')
[ ${#programs[@]} = 2 ] || fail "the wheel has not one module and one command: ${programs[*]}"
foreign=$(objdump -p "${programs[@]}" | sed -n 's/^ *NEEDED *//p' | sort -u |
  grep -vE '^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-.*)\.so\.[0-9]$' || true)
[ -z "$foreign" ] || fail "the wheel needs libraries that a system may not have:"$'\n'"$foreign"
# newest NAME: the newest version of a library's symbols that they need.
newest() { objdump -T "${programs[@]}" | grep -oE "$1_[0-9.]+[0-9]" | sort -uV | tail -n 1 | cut -d _ -f 2; }
glibc=$(newest GLIBC)
# Systems with glibc 2.34 have the libstdc++ of GCC 11 at least. A compiler that needs a newer one needs a later tag.
printf '%s\n' "$(newest GLIBCXX)" 3.4.29 | sort -C -V && printf '%s\n' 2.34 "$glibc" | sort -C -V ||
  fail "the wheel needs glibc $glibc and libstdc++ with GLIBCXX_$(newest GLIBCXX), which no tag of manylinux describes"
tag=manylinux_${glibc/./_}_$(uname -m)
mkdir -p "$out"
"$scratch/build/bin/wheel" tags --remove --platform-tag "$tag" "$scratch"/wheel/*.whl >"$scratch/tags"
wheel=$(echo "$scratch"/wheel/*.whl)

if [ -z "${PYTHONS:-}" ]; then
  PYTHONS=$(ls -d "$HOME"/.pyenv/versions/3.1[0-9]*/bin/python 2>/dev/null || true)
  [ -n "$PYTHONS" ] || PYTHONS=$(command -v python3)
fi
for python in $PYTHONS; do
  fresh=$scratch/fresh
  rm -rf "$fresh"
  "$python" -m venv "$fresh"
  # Nothing but Python on the path: no compiler, no CMake.
  alone() { env -i PATH="$fresh/bin" HOME="$scratch" "$@"; }
  alone pip install -q --disable-pip-version-check --only-binary :all: "$wheel" || fail "$python: the wheel cannot be installed"
  alone python - <<'END' || fail "$python: the package does not work"
import cairn, numpy
from cairn._cairn import _probe_gpus
pool = cairn.BlockPool(64, 16)
keys = cairn.hash_tokens(numpy.arange(256, dtype=numpy.uint32), 16)
pool.allocate(16).complete(keys).register().release()
assert len(pool.match_prefix(keys)) == 16
try:
    pool.allocate(65)
except cairn.ExhaustedError as error:
    assert "65" in str(error), error
else:
    raise AssertionError("65 of 64 blocks")
assert _probe_gpus()["kernels"], "no kernels for GPUs; build/wheel/CMakeCache.txt says which nvcc was found (CAIRN_NVCC)"
END
  alone python -m cairn --version >/dev/null || fail "$python: no command"
  echo "works with $("$python" --version)"
  if [ $runs_tests = 1 ]; then
    requirements -vE 'nanobind|nanobind-backend|scikit-build-core' >"$scratch/test.txt"
    "$fresh/bin/pip" install -q --disable-pip-version-check -r "$scratch/test.txt"
    "$fresh/bin/python" -m pytest -p no:cacheprovider || fail "$python: tests fail"
  fi
done
cp "$wheel" "$out"
echo "$out/$(basename "$wheel")"
