#!/bin/bash
# Makes the pictures in docs/images again: pages of generated traffic, and the live dashboard, as a browser shows them.
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

# picture NAME SIZE SCHEME ADDRESS: the upper part of a page; SCHEME 1 is light, 0 dark
picture() {
  chromium-headless-shell --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
    --user-data-dir="$scratch/$1" --window-size="$2" --blink-settings=preferredColorScheme="$3" \
    --virtual-time-budget=3000 --screenshot="$images/$1.png" "$4" 2>/dev/null
  pngquant --force --strip --output "$images/$1.png" "$images/$1.png"
}

"$cairn" trace --kind agents --requests 4000 >agents.jsonl
"$cairn" replay agents.jsonl --workers 4 --blocks 8192 --html replay.html
picture replay 1240,1210 1 "file://$scratch/replay.html"
"$cairn" hitrate agents.jsonl --html hitrate.html
picture hitrate 1240,905 1 "file://$scratch/hitrate.html"

# Recorded agents if they are at hand, else generated ones.
recorded=${CAIRN_TEST_DATA:-/nonexistent}/traces/agentic_trace.jsonl.gz
[ -e "$recorded" ] || recorded=agents.jsonl
"$scripts"/eviction_picture.py "$recorded" >"$images/returns.svg"

# The dashboard, after two minutes of the demo: the load comes and goes within one.
"$cairn" serve --demo --set http.listen=127.0.0.1:9471 >/dev/null 2>&1 &
demo=$!
trap 'kill "$demo"; wait "$demo" || true; rm -rf "$scratch"' EXIT
sleep 120
picture dashboard 1240,1130 1 http://127.0.0.1:9471/
picture dashboard-phone 500,1000 0 http://127.0.0.1:9471/
