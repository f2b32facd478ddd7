#!/bin/bash
# Fails on C++ that is not formatted as .clang-format says. `scripts/check_format.sh --fix` formats it.
# Files that passed and did not change since are not looked at again. Exits with 77, for "skipped", on a system that has no
# clang-format 19, whose formatting is the one that counts.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
cairn_need 'format?' || exit 1
formatter=clang-format-19
command -v $formatter >/dev/null || formatter=clang-format
if [[ "$($formatter --version 2>/dev/null)" != *' version 19.'* ]]; then
  echo "this system has no clang-format 19"
  [ -n "${CAIRN_REQUIRE_ALL:-}" ] && exit 1
  exit 77
fi

stamp=build/.passed/format
newer=()
[ "$stamp" -nt .clang-format ] && newer=(-newer "$stamp")
mkdir -p "$(dirname "$stamp")"
touch "$stamp.new"
mapfile -d '' files < <(find . \( -path ./build -o -path ./.git -o -path ./.cache \) -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) "${newer[@]}" -print0)
if [ ${#files[@]} -gt 0 ]; then
  if [ "${1:-}" = --fix ]; then
    $formatter -i "${files[@]}" || exit 1
  elif ! $formatter --dry-run -Werror "${files[@]}"; then
    echo "run: scripts/check_format.sh --fix" >&2
    exit 1
  fi
fi
mv "$stamp.new" "$stamp"
