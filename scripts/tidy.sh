#!/bin/bash
# Runs clang-tidy over every source that the release preset compiles, or over the FILEs given: scripts/tidy.sh [FILE...]
# Installs it when it is missing. Says nothing when all is well.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh
cairn_need build test tidy || exit 1
# A tree that is never built, of files one by one: clang cannot read what g++ precompiled.
tree=build/tidy
export tree
cairn_quietly build/tidy.log cmake --preset release -B $tree -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCAIRN_BATCHES=OFF ||
  { cat build/tidy.log >&2; exit 1; }

if [ $# -gt 0 ]; then
  files=("$@")
else
  # Not what the build generates.
  mapfile -t files < <(python3 - <<'END'
import json, os
root, build = os.getcwd() + "/", os.getcwd() + "/build/"
files = {entry["file"] for entry in json.load(open("build/tidy/compile_commands.json"))}
print("\n".join(sorted(f[len(root):] for f in files if f.startswith(root) and not f.startswith(build))))
END
  )
fi

check_one() {
  local output
  # What it says of warnings in system headers is no finding.
  output=$(clang-tidy-19 -p "$tree" --quiet "$1" 2>&1) && return 0
  echo "$output" | grep -v -e 'warnings generated' -e 'warnings treated as errors'
  return 1
}
export -f check_one
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$CAIRN_JOBS" bash -c 'check_one "$1"' _ || exit 1
