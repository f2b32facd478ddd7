#!/bin/bash
# Makes the pictures in docs/images again: pages of generated traffic, as a browser shows them.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
cairn_need build pages pictures
cairn_configure command
cairn_build release cairn_cli
cairn=$PWD/build/release/bin/cairn images=$PWD/docs/images scripts=$PWD/scripts
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# picture NAME HEIGHT: the upper part of NAME.html
picture() {
  chromium-headless-shell --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
    --user-data-dir="$scratch/$1" --window-size=1240,"$2" --blink-settings=preferredColorScheme=1 \
    --screenshot="$images/$1.png" "file://$scratch/$1.html" 2>/dev/null
  pngquant --force --strip --output "$images/$1.png" "$images/$1.png"
}

"$cairn" trace --kind agents --requests 4000 >agents.jsonl
"$cairn" replay agents.jsonl --workers 4 --blocks 8192 --html replay.html
picture replay 1210
"$cairn" hitrate agents.jsonl --html hitrate.html
picture hitrate 905

# Recorded agents if they are at hand, else generated ones.
recorded=${CAIRN_TEST_DATA:-/nonexistent}/traces/agentic_trace.jsonl.gz
[ -e "$recorded" ] || recorded=agents.jsonl
"$scripts"/eviction_picture.py "$recorded" >"$images/returns.svg"
