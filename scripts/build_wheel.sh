#!/bin/bash
# build_wheel.sh [FOLDER]: builds a wheel of the Python package that needs no other library than glibc, puts it into FOLDER
# (dist/ by default), and installs it into a fresh virtual environment of each Python that it finds. The wheel is tagged with the
# oldest glibc that has all symbols it needs: build it on an old system to serve more of them. PYTHONS names other Pythons.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
out=$(realpath -m "${1:-dist}")
cairn_need build 'python?' || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}

python3 -m venv "$scratch/build" || fail "python3 makes no virtual environment; install python3-venv"
"$scratch/build/bin/pip" install -q --disable-pip-version-check \
  $(grep -oE '^(nanobind|nanobind-backend|scikit-build-core|typing-extensions)==[^;]*' scripts/python-requirements.txt) wheel==0.48.0
CMAKE_BUILD_PARALLEL_LEVEL=$CAIRN_JOBS "$scratch/build/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation \
  --no-deps --config-settings build-dir=build/wheel --config-settings cmake.define.CAIRN_STATIC=ON \
  --config-settings cmake.define.CAIRN_BATCHES=ON -w "$scratch/wheel" .

# What it needs of the system, of the module and of the command.
mkdir "$scratch/files"
python3 -m zipfile -e "$scratch"/wheel/*.whl "$scratch/files"
mapfile -t programs < <(find "$scratch/files" -name '*.so' -o -path '*/scripts/cairn')
[ ${#programs[@]} = 2 ] || fail "the wheel has not one module and one command: ${programs[*]}"
foreign=$(objdump -p "${programs[@]}" | sed -n 's/^ *NEEDED *//p' | sort -u |
  grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux-.*)\.so\.[0-9]$' || true)
[ -z "$foreign" ] || fail "the wheel needs libraries that a system may not have:"$'\n'"$foreign"
glibc=$(objdump -T "${programs[@]}" | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1 | cut -d _ -f 2)
tag=manylinux_${glibc/./_}_$(uname -m)
mkdir -p "$out"
"$scratch/build/bin/wheel" tags --remove --platform-tag "$tag" "$scratch"/wheel/*.whl >"$scratch/tags"
wheel=$(echo "$scratch"/wheel/*.whl)
cp "$wheel" "$out"

# Nothing but Python on the path: no compiler, no CMake.
if [ -z "${PYTHONS:-}" ]; then
  PYTHONS=$(ls -d "$HOME"/.pyenv/versions/3.1[0-9]*/bin/python 2>/dev/null || true)
  PYTHONS+=" $(command -v python3)"
fi
for python in $PYTHONS; do
  fresh=$scratch/fresh
  rm -rf "$fresh"
  "$python" -m venv "$fresh"
  env -i PATH="$fresh/bin" HOME="$scratch" "$fresh/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$wheel" ||
    fail "$python: the wheel cannot be installed"
  env -i PATH="$fresh/bin" HOME="$scratch" "$fresh/bin/python" - <<'END' || fail "$python: the package does not work"
import cairn, numpy
pool = cairn.BlockPool(64, 16)
keys = cairn.hash_tokens(numpy.arange(256, dtype=numpy.uint32), 16)
pool.allocate(16).complete(keys).register().release()
assert len(pool.match_prefix(keys)) == 16
END
  env -i PATH="$fresh/bin" HOME="$scratch" "$fresh/bin/python" -m cairn --version >/dev/null || fail "$python: no command"
  echo "works with $("$python" --version)"
done
echo "$out/$(basename "$wheel")"
