#!/bin/bash
# Fails on C++ that is not formatted as .clang-format says. `scripts/check_format.sh --fix` formats it.
# Files that passed and did not change since are not looked at again.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
cairn_need clang-format-19 || exit 1

stamp=build/.passed/format
newer=()
[ "$stamp" -nt .clang-format ] && newer=(-newer "$stamp")
mkdir -p "$(dirname "$stamp")"
touch "$stamp.new"
mapfile -d '' files < <(find . \( -path ./build -o -path ./.git -o -path ./.cache \) -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) "${newer[@]}" -print0)
if [ ${#files[@]} -gt 0 ]; then
  if [ "${1:-}" = --fix ]; then
    clang-format-19 -i "${files[@]}" || exit 1
  elif ! clang-format-19 --dry-run -Werror "${files[@]}"; then
    echo "run: scripts/check_format.sh --fix" >&2
    exit 1
  fi
fi
mv "$stamp.new" "$stamp"
