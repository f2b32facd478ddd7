#!/bin/bash
# Kills a process with a disk tier over and over, and verifies its file after each: scripts/crash.sh N [SEED]
#
# N is how many times it is killed, at random moments; as many copies of a file, N but at most 1000, are damaged at random.
# Everything that a file still names must be whole, and nothing wrong may be served. SEED repeats a run (as far as
# moments can be repeated); without one it is a new one, which is printed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh

case "${1:-}" in
  -h | --help) sed -n '2,/^set/{/^set/!s/^# \?//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
esac
if [[ ! ${1:-} =~ ^[0-9]+$ || ! ${2:-0} =~ ^[0-9]+$ || $# -gt 2 ]]; then
  echo "usage: scripts/crash.sh N [SEED]" >&2
  exit 2
fi
kills=$1 seed=${2:-$((RANDOM * 32768 + RANDOM))}

cairn_need build test && cairn_configure release && cairn_build release crash_test || exit 1
echo "seed $seed"
exec build/release/bin/crash_test --gtest_brief=1 --kills="$kills" --damages=$((kills < 1000 ? kills : 1000)) --seed="$seed"
