#!/usr/bin/env python3
"""Plots hit ratio over capacity for every eviction policy: hitrate_plot.py [TRACE] [--out curves.png]

Without a trace it generates the traffic of agents. With matplotlib the curves go to a file, else to the terminal as text.
"""

import argparse

import cairn


def show_text(rows):
    """One line for each policy, one bar for each capacity."""
    capacities = list(dict.fromkeys(row.capacity for row in rows))
    print(f"{'policy':14}" + "".join(f"{capacity:>9}" for capacity in capacities))
    for policy in dict.fromkeys(row.policy for row in rows):
        ratios = [row.hit_ratio for row in rows if row.policy == policy]
        print(f"{policy:14}" + "".join(f"{ratio:9.4f}" for ratio in ratios) + "  " + "".join(" ▁▂▃▄▅▆▇█"[round(8 * r)] for r in ratios))


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for policy in dict.fromkeys(row.policy for row in rows):
        points = [(row.blocks, row.hit_ratio) for row in rows if row.policy == policy]
        bound = policy in ("opt", "infinite")
        axes.plot(*zip(*points), marker="" if bound else "o", linestyle="--" if bound else "-", label=policy)
    axes.set_xscale("log")
    axes.set_xlabel("capacity in blocks")
    axes.set_ylabel("share of the blocks that were hit")
    axes.set_title(rows[0].trace)
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?", help="a trace in Mooncake's JSONL, plain or gzipped")
    parser.add_argument("--requests", type=int, default=4000, help="of the traffic that is generated without a trace")
    parser.add_argument("--out", help="the picture; without it, or without matplotlib, the curves are printed")
    options = parser.parse_args()
    trace = options.trace or cairn.traces.generate("agents", requests=options.requests)
    rows = cairn.hitrate(trace, capacities=["1%", "2%", "5%", "10%", "20%", "50%"])
    show_text(rows)
    print(f"the best: {rows.best().policy}")
    if options.out:
        try:
            plot(rows, options.out)
        except ImportError:
            print("no picture: matplotlib is not installed")


if __name__ == "__main__":
    main()
