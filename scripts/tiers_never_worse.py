#!/usr/bin/env python3
"""Replays every kind of `cairn trace`, and the traces that are given, with and without tiers, and compares the mean TTFT.

    scripts/tiers_never_worse.py [--cairn build/release/bin/cairn] [TRACE ...]

A tier must never cost more than 1 % (docs/replay.md): a load that is slower than computing is not made, and offloading
must not keep the engine from its blocks. An engine that gets more requests than it can serve is chaotic: queues grow, and
one token less in a pass changes the mean TTFT by percents. So the run without tiers is repeated with passes of one and
two tokens less, and what these differ by is allowed too. Prints a Markdown table, and exits with 1 if a case is worse.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

KINDS = ("chat", "agents", "scan", "flood", "diurnal", "loop")
# An engine with much memory and one with little, each with fast and with slow links.
ENGINES = {
    "original, 4,096 blocks": ["--blocks", "4096"],
    "original, 16,384 blocks": [],
    "original, slow links": ["--blocks", "4096", "--bandwidth", "host=5", "--bandwidth", "disk=0.5"],
    "h100-8b": ["--engine", "h100-8b"],
    "h200-70b-tp4": ["--engine", "h200-70b-tp4"],
}
TIERS = ["--host-size", "256GB", "--disk-size", "2TB"]
MOST = 0.01


def replay(cairn, trace, options):
    """The mean TTFT of each run, in ms, by name."""
    command = [cairn, "replay", trace, "--workers", "4", "--json", "-", *options]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return {run["name"]: run["report"]["mean_ttft_ms"] for run in json.loads(answer.stdout)["runs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cairn", default="build/release/bin/cairn", help="the program")
    parser.add_argument("--requests", type=int, default=3000, help="of each generated trace")
    parser.add_argument("traces", nargs="*", help="traces beside the generated ones")
    arguments = parser.parse_args()
    worst = 0.0
    print("| trace | engine | TTFT without tiers | +host | +disk | +both |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for kind in KINDS:
            path = os.path.join(folder, kind)
            with open(path, "w", encoding="utf-8") as file:
                subprocess.run([arguments.cairn, "trace", "--kind", kind, "--requests", str(arguments.requests)],
                               stdout=file, check=True)
            traces.append(path)
        for trace in traces + arguments.traces:
            for engine, options in ENGINES.items():
                means = replay(arguments.cairn, trace, [*options, *TIERS, "--scenarios"])
                alone = means.pop("GPU")
                repeats = replay(arguments.cairn, trace, [*options, "--compare", "batch-tokens=8191,8190"])
                chaos = max(abs(mean / alone - 1) for mean in repeats.values())
                changes = [mean / alone - 1 for mean in means.values()]
                worst = max(worst, *(change - chaos for change in changes))
                cells = " | ".join(f"{change:+.1%}" for change in changes)
                print(f"| {os.path.basename(trace)} | {engine} | {alone:,.0f} ms ± {chaos:.1%} | {cells} |", flush=True)
    print(f"\nworst, beyond what runs without tiers differ by: {worst:+.2%}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
