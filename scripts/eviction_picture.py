#!/usr/bin/env python3
"""Draws docs/images/returns.svg: when the sessions of a trace return, and what that makes a block worth.

    cairn trace --kind agents > agents.jsonl
    scripts/eviction_picture.py agents.jsonl > docs/images/returns.svg

A session returns with the next request of its session_id or, without one, with the next request that has its second last
block. The worth is the Gittins index of cairn/evict/return_model.cc, for one class: the most returns for each second in
the pool, over all ages at which a block could be evicted.
"""
import gzip
import json
import math
import sys

BUCKETS = 60  # up to a second, then four for each doubling
WIDTH, HEIGHT, LEFT, TOP = 360, 190, 44, 34


def bucket_of(seconds):
    return 0 if seconds < 1 else min(BUCKETS - 1, 1 + int(4 * math.log2(seconds)))


def start_of(bucket):
    return 0 if bucket == 0 else 2 ** ((bucket - 1) / 4)


def gaps(path):
    """The seconds after which each request's session returned; None if it did not."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    last, end = {}, rows[-1]["timestamp"]
    for row in rows:
        ids, now = row["hash_ids"], row["timestamp"]
        name = row.get("session_id")
        found = last.pop(name, None) if name else next((last.pop(i) for i in reversed(ids) if i in last), None)
        if found is not None:
            yield (now - found) / 1000, True
        last[name or ids[max(0, len(ids) - 2)]] = now
    for then in last.values():
        yield (end - then) / 1000, False


def curves(path):
    returned, reached = [0] * BUCKETS, [0] * (BUCKETS + 1)
    for seconds, came in gaps(path):
        bucket = bucket_of(seconds)
        returned[bucket] += came
        reached[bucket] += 1
    for b in reversed(range(BUCKETS)):
        reached[b] += reached[b + 1]
    total = max(1, sum(returned))
    hazard = [(returned[b] + 0.5) / (reached[b] + 10) for b in range(BUCKETS)]
    stretches, worth = [], [0.0] * BUCKETS
    for b in reversed(range(BUCKETS)):
        h, width = hazard[b], start_of(b + 1) - start_of(b)
        now = (h, width * (1 - h / 2), 1 - h)
        while stretches and stretches[-1][0] * now[1] > now[0] * stretches[-1][1]:
            following = stretches.pop()
            now = (now[0] + now[2] * following[0], now[1] + now[2] * following[1], now[2] * following[2])
        stretches.append(now)
        worth[b] = now[0] / now[1]
    return [count / total for count in returned], worth


def panel(x, title, values, last):
    highest = max(values)
    step = WIDTH / last
    out = [f'<g transform="translate({x + LEFT},{TOP})"><text x="0" y="-12" font-weight="bold">{title}</text>']
    for b, value in enumerate(values[:last]):
        height = HEIGHT * value / highest
        out.append(f'<rect x="{b * step:.1f}" y="{HEIGHT - height:.1f}" width="{step - 1:.1f}" height="{height:.1f}"/>')
    out.append(f'<path d="M0,{HEIGHT}H{WIDTH}" stroke="#888"/>')
    for seconds in (1, 4, 16, 64, 256, 1024):
        b = 1 + 4 * math.log2(seconds)
        if b < last:
            out.append(f'<text x="{b * step:.1f}" y="{HEIGHT + 18}" text-anchor="middle">{seconds}</text>')
    out.append(f'<text x="{WIDTH}" y="{HEIGHT + 34}" text-anchor="end">seconds since the last use</text></g>')
    return "\n".join(out)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    share, worth = curves(sys.argv[1])
    last = 1 + 4 * 9  # up to 512 seconds
    width, height = 2 * (WIDTH + LEFT) + 40, TOP + HEIGHT + 46
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
          'font-family="sans-serif" font-size="13">')
    print('<style>rect{fill:#2a6fb0} text{fill:#333} '
          '@media (prefers-color-scheme: dark){rect{fill:#6fb0f0} text{fill:#ccc}}</style>')
    print(panel(0, "sessions that return at this age", share, last))
    print(panel(WIDTH + LEFT + 20, "worth of a block of this age", worth, last))
    print("</svg>")


main()
