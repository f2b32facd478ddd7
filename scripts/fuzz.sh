#!/bin/bash
# Fuzzes the decoders: scripts/fuzz.sh [TARGET] [SECONDS]
#
# TARGET is a program of tests/fuzz (default: each of them in turn), SECONDS the time for each (default 60). What
# libFuzzer learns is kept in build/fuzz/corpus/TARGET; a crash leaves its input in build/fuzz/crashes/TARGET: copy it
# to tests/fuzz/corpus/, where every test run tries it again.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/setup.sh

targets=() seconds=60
for word; do
  case $word in
    -h | --help) sed -n '2,/^set/{/^set/!s/^# \?//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    *[!0-9]*) targets+=("$word") ;;
    *) seconds=$word ;;
  esac
done

cairn_need build fuzz && cairn_configure fuzz || exit 1
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(grep . build/fuzz/fuzzers.txt)
if [ ${#targets[@]} = 0 ]; then
  echo "there is no fuzz target: add tests/fuzz/X_fuzz.cc"
  exit 0
fi
cairn_build fuzz "${targets[@]}" || exit 1

status=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target crashes=build/fuzz/crashes/$target
  mkdir -p "$corpus" "$crashes"
  seeds=tests/fuzz/corpus/${target%_fuzz}
  [ -d "$seeds" ] || seeds=
  if cairn_quietly "build/fuzz/$target.log" "build/fuzz/bin/$target" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix="$crashes/" "$corpus" $seeds; then
    echo "$target: nothing found in $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log") runs"
  else
    tail -n 60 "build/fuzz/$target.log"
    echo "$target: FAILED; the input is in $crashes/, the log in build/fuzz/$target.log"
    status=1
  fi
done
exit $status
