#!/bin/bash
# check_python.sh [--asan | --references] [WORD...]: installs the Python package into build/python-venv from the tree build/release, and runs
# its tests there; pytest's report is build/python.junit. WORDs are passed to pytest.
#
# --asan: with the address and undefined-behaviour sanitizers, in build/python-asan and build/python-asan-venv, without the
# tests of types, of the time that an import takes, and of forks. Leaks of memory that the module allocated are errors too; Python itself
# keeps some of its own at its end.
#
# --references: with a debug build of Python (DEBUG_PYTHON, python3-dbg by default), in build/python-debug and build/python-debug-venv,
# looks for references and memory blocks that operations leave behind (python/tests/references.py). WORDs are names of operations.
#
# Status 77: the system has no venv, no headers of Python, or pip could not fetch what scripts/python-requirements.txt names;
# with CAIRN_REQUIRE_ALL that is a failure.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
venv=$PWD/build/python-venv tree=build/release report=build/python.junit settings=() run=(env) python=python3
tests=(-m pytest -p no:cacheprovider)
if [ "${1:-}" = --asan ]; then
  shift
  venv=$PWD/build/python-asan-venv tree=build/python-asan report=build/python-asan.junit
  settings=(--config-settings cmake.build-type=None --config-settings cmake.define.CMAKE_CXX_FLAGS="-O1 -g1"
    --config-settings cmake.define.CAIRN_SANITIZE=address,undefined --config-settings cmake.define.CAIRN_BATCHES=ON)
  # Sanitizers make the import slow, and complain in a forked child of the threads that are not there.
  set -- --ignore python/tests/test_typing.py --deselect python/tests/test_experiments.py::test_import_is_fast_and_light \
    --deselect python/tests/test_lifetimes.py::test_a_forked_child_gets_an_error "$@"
elif [ "${1:-}" = --references ]; then
  shift
  venv=$PWD/build/python-debug-venv tree=build/python-debug report='' python=${DEBUG_PYTHON:-python3-dbg}
  settings=(--config-settings wheel.py-api= --config-settings cmake.define.CAIRN_PYTHON_DEBUG=ON
    --config-settings cmake.define.CAIRN_BATCHES=ON)
  tests=(python/tests/references.py)
fi

missing() {
  rm -rf "$venv"
  echo "the Python package was not tested: $1"
  [ -z "${CAIRN_REQUIRE_ALL:-}" ] && exit 77
  exit 1
}

cairn_need build 'python?' || exit 1
[ $tree != build/release ] || cairn_configure release || exit 1
[ -z "$report" ] || rm -f "$report"
if ! cmp -s scripts/python-requirements.txt "$venv/requirements.txt"; then
  rm -rf "$venv"
  command -v "$python" >/dev/null || missing "there is no $python; install python3-dbg, or name a debug build in DEBUG_PYTHON"
  "$python" -m venv "$venv" || missing "$python makes no virtual environment; install python3-venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r scripts/python-requirements.txt ||
    missing "pip could not install what scripts/python-requirements.txt names"
  cp scripts/python-requirements.txt "$venv/requirements.txt"
fi
"$venv/bin/python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
  missing "Python.h is missing; install python3-dev"

# The tree of the release stage, so that the library is compiled once; the preset's options stay as they are.
CMAKE_BUILD_PARALLEL_LEVEL=$CAIRN_JOBS "$venv/bin/pip" install -q --disable-pip-version-check --no-build-isolation --no-deps \
  --force-reinstall --config-settings build-dir=$tree "${settings[@]}" . || exit 1
if [ $tree = build/python-asan ]; then
  # Stacks of three frames: a leak is suppressed if Python or a package allocated it, not if they called the module that did.
  printf 'leak:%s\n' python3 libpython nanobind_backend numpy pandas >build/python-asan/leaks.txt
  run=(env PYTHONMALLOC=malloc LD_PRELOAD="$(${CXX:-g++} -print-file-name=libasan.so) $(${CXX:-g++} -print-file-name=libstdc++.so)"
    ASAN_OPTIONS="malloc_context_size=${CAIRN_ASAN_FRAMES:-3}" UBSAN_OPTIONS=print_stacktrace=1
    LSAN_OPTIONS="suppressions=$PWD/build/python-asan/leaks.txt:print_suppressions=0")
  # Sanitizers of this compiler's age cannot always map their memory where addresses are widely randomised.
  setarch -R true 2>/dev/null && run=(setarch -R "${run[@]}")
fi
"${run[@]}" "$venv/bin/python" "${tests[@]}" ${report:+--junit-xml "$report"} "$@"
