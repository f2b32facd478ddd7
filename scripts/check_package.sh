#!/bin/bash
# Installs build/release to a scratch prefix, moves it, and builds and runs tests/consumer against it, by find_package and by
# pkg-config, and a program in C. Then compiles every installed header alone. Skipped if nothing changed since it last passed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
cairn_need build test && cairn_configure release && cairn_build release all || exit 1

stamp=build/.passed/package
if [ -f "$stamp" ] && [ -z "$(find build/release/cairn/libcairn.a CMakeLists.txt cairn cmake tests/consumer examples/c \
  scripts/check_package.sh -type f -newer "$stamp" -print -quit)" ]; then
  exit 0
fi
rm -f "$stamp"
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}
expect() {
  local output
  output=$("$1") && [ "$output" = "1 block cached" ] || fail "the consumer built by $2 printed '$output', not '1 block cached'"
}

cmake --install build/release --prefix "$scratch/staged" || fail "installing failed"
mv "$scratch/staged" "$scratch/prefix"
# Absolute paths would only work on this machine.
if grep -rIl -e "$scratch/staged" -e "$PWD" "$scratch/prefix"; then
  fail "the files above name the folder they were built or installed in"
fi

cmake -G Ninja -S tests/consumer -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$scratch/prefix" &&
  cmake --build "$scratch/consumer" || fail "the consumer does not build by find_package(Cairn)"
expect "$scratch/consumer/consumer" find_package

PKG_CONFIG_PATH=$(dirname "$(find "$scratch/prefix" -name cairn.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are words
for static in '' --static; do
  "$CXX" -std=c++20 tests/consumer/consumer_main.cc -o "$scratch/by_pkg_config" $(pkg-config $static --cflags --libs cairn) ||
    fail "the consumer does not build by pkg-config $static"
  expect "$scratch/by_pkg_config" "pkg-config $static"
done

# The C library, from C. The program finds it through LD_LIBRARY_PATH.
# shellcheck disable=SC2046 # flags are words
cc -std=c11 -I . examples/c/manager.c -o "$scratch/in_c" $(pkg-config --cflags --libs cairn_c) ||
  fail "examples/c/manager.c does not build by pkg-config cairn_c"
LD_LIBRARY_PATH=$(dirname "$(find "$scratch/prefix" -name libcairn_c.so)") "$scratch/in_c" >/dev/null ||
  fail "examples/c/manager.c does not run against the installed library"

# In the repository a public header can include a private one by mistake; here it cannot.
(cd "$scratch/prefix/include" && find cairn -name '*.h' | sort | sed 's/.*/#include "&"/') >"$scratch/all.cc"
echo "$(wc -l <"$scratch/all.cc") public headers"
# shellcheck disable=SC2046
"$CXX" -std=c++20 -Wall -Wextra -Werror -fsyntax-only "$scratch/all.cc" $(pkg-config --cflags cairn) ||
  fail "the installed headers do not compile by themselves: name the missing one in HEADERS of its cairn_component()"

if [ -x build/release/bin/cairn ]; then
  "$scratch/prefix/bin/cairn" --help >/dev/null || fail "the installed cairn command does not start"
fi
mkdir -p "$(dirname "$stamp")" && touch "$stamp"
