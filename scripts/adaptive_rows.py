#!/usr/bin/env python3
"""Where `adaptive` is behind the best of lru, arc and s3-fifo by more than 2 %, or behind lru by more than 1 %.

Generates traces of every kind with `cairn trace`, runs `cairn hitrate` on them, and prints each row that misses, the
worst ones and the counts. Fails where --most is given and more rows miss.

    scripts/adaptive_rows.py build/release/bin/cairn [--requests 3000] [--seeds 1,3,7] [--capacity 0.5%,1%,2%,5%,10%,20%]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

KINDS = ["chat", "agents", "scan", "flood", "diurnal", "loop"]
EXPERTS = ["lru", "arc", "s3-fifo"]
BELOW_BEST = 0.02
BELOW_LRU = 0.01


def measure(cairn, trace, capacity):
    """{capacity: {policy: (hit ratio, blocks)}}"""
    command = [cairn, "hitrate", trace, "--policy", ",".join([*EXPERTS, "adaptive"]), "--capacity", capacity]
    done = subprocess.run([*command, "--json", "-"], check=True, capture_output=True, text=True)
    ratios = {}
    for row in json.loads(done.stdout)["rows"]:
        ratios.setdefault(row["capacity"], {})[row["policy"]] = (row["hit_ratio"], row["blocks"])
    return ratios


def rows_of(cairn, name, trace, capacity):
    for size, policies in measure(cairn, trace, capacity).items():
        adaptive, blocks = policies["adaptive"]
        best = max(EXPERTS, key=lambda expert: policies[expert][0])
        ratios = {expert: policies[expert][0] for expert in EXPERTS}
        yield {
            "name": f"{name} at {size}",
            "blocks": blocks,
            "adaptive": adaptive,
            "best": best,
            **ratios,
            "to_best": adaptive / ratios[best] - 1 if ratios[best] > 0 else 0.0,
            "to_lru": adaptive / ratios["lru"] - 1 if ratios["lru"] > 0 else 0.0,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cairn", help="the command")
    parser.add_argument("traces", nargs="*", help="traces to measure besides the generated ones")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", default="1,3,7")
    parser.add_argument("--requests", default="3000", help="of each trace; several with commas between them")
    parser.add_argument("--capacity", default="0.5%,1%,2%,5%,10%,20%")
    parser.add_argument("--most", type=int, help="fail where more rows than this miss")
    parser.add_argument("--all", action="store_true", help="print every row")
    options = parser.parse_args()

    rows = []
    for trace in options.traces:
        rows += rows_of(options.cairn, pathlib.Path(trace).stem, trace, options.capacity)
    with tempfile.TemporaryDirectory() as folder:
        for kind in [kind for kind in options.kinds.split(",") if kind]:
            for requests in options.requests.split(","):
                for seed in options.seeds.split(","):
                    trace = f"{folder}/trace.jsonl"
                    command = [options.cairn, "trace", "--kind", kind, "--requests", requests, "--seed", seed]
                    with open(trace, "w", encoding="utf-8") as file:
                        subprocess.run(command, check=True, stdout=file)
                    name = f"{kind} {requests} seed {seed}"
                    rows += rows_of(options.cairn, name, trace, options.capacity)

    misses = [row for row in rows if row["to_best"] < -BELOW_BEST or row["to_lru"] < -BELOW_LRU]
    for row in rows if options.all else sorted(misses, key=lambda row: row["to_best"]):
        print(
            f"{row['name']:32} {row['blocks']:6} blocks   lru {row['lru']:.4f}  arc {row['arc']:.4f}  s3-fifo "
            f"{row['s3-fifo']:.4f}  adaptive {row['adaptive']:.4f}   to best {row['to_best']:+.1%} ({row['best']})  "
            f"to lru {row['to_lru']:+.2%}"
        )
    if not rows:
        sys.exit("no rows")
    mean = {to: sum(row[to] for row in rows) / len(rows) for to in ("to_best", "to_lru")}
    worst = {to: min(rows, key=lambda row, to=to: row[to]) for to in ("to_best", "to_lru")}
    print(f"{len(misses)} of {len(rows)} rows miss; adaptive against the best of {', '.join(EXPERTS)}: "
          f"{mean['to_best']:+.1%} on average, {worst['to_best']['to_best']:+.1%} at worst ({worst['to_best']['name']}); "
          f"against lru: {mean['to_lru']:+.1%}, {worst['to_lru']['to_lru']:+.2%} ({worst['to_lru']['name']})")
    if options.most is not None and len(misses) > options.most:
        sys.exit(1)


if __name__ == "__main__":
    main()
