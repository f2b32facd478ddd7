#!/bin/bash
# Builds examples/llama against an installation of build/release, with the sources of llama.cpp that llama-cpp-python carries (fetched
# into build/llama-source, 80 MB), and runs its test: the same tokens, computed, restored and after damage. Compiling llama.cpp takes
# about six minutes on one core, once. Status 77: the sources could not be fetched; with CAIRN_REQUIRE_ALL that is a failure.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
version=0.3.36 source=build/llama-source
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

cairn_need build && cairn_configure release && cairn_build release cairn cairn_c cairn_cli || exit 1
if [ ! -d $source ]; then
  rm -rf $source.part && mkdir -p $source.part
  if ! python3 tests/engines/install/source_archive.py llama-cpp-python llama_cpp_python-$version.tar.gz $sha256 $source.part.tar.gz ||
    ! tar -xzf $source.part.tar.gz -C $source.part --strip-components=3 "llama_cpp_python-$version/vendor/llama.cpp"; then
    echo "the example for llama.cpp was not tested: its sources could not be fetched"
    [ -z "${CAIRN_REQUIRE_ALL:-}" ] && exit 77
    exit 1
  fi
  rm $source.part.tar.gz && mv $source.part $source
fi
rm -rf build/llama-prefix
cmake --install build/release --prefix build/llama-prefix >/dev/null &&
  cmake -G Ninja -S examples/llama -B build/llama -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="${CXX:-g++}" \
    -DCMAKE_PREFIX_PATH="$PWD/build/llama-prefix" -DLLAMA_SOURCE="$PWD/$source" &&
  ninja -C build/llama -j "$CAIRN_JOBS" cairn_llama &&
  ctest --test-dir build/llama -R '^cairn_llama$' --no-tests=error --output-on-failure
