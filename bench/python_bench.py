#!/usr/bin/env python3
"""What calls from Python cost beside the same calls from C++, in one run, with the limits: the fastest of 15 rounds, and the
median of steps.

    call     an attribute that C++ reads in a nanosecond
    match    6,250 keys in a pool, and the release of the blocks
    keys     of 100,000 tokens in a numpy array
    step     256 requests that decode a token each: take_outcomes() and build, from columns and from Scheduled objects
             that are made in each step; C++, columns and objects by turns

Exits with 1 if a limit is missed and --check is given.
"""

import argparse
import statistics
import sys
import time

import numpy as np

import cairn
from cairn import _cairn

BLOCK, BLOCKS, BATCH = 16, 6250, 256
MODEL = {"name": "bench", "layers": 1, "heads": 1, "head_size": 8, "element_type": "f16"}


def nanoseconds(call, repeats, rounds=15):
    """The time of one call, in the fastest round."""
    times = []
    for _ in range(rounds):
        before = time.perf_counter_ns()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter_ns() - before) / repeats)
    return min(times)


def native(call, rounds=15):
    return min(call() for _ in range(rounds))


class Report:
    def __init__(self):
        self.missed = 0

    def line(self, name, python, native, value, limit, unit):
        is_met = value <= limit
        self.missed += not is_met
        beside = f"{native / 1000:10.3f} us in C++"
        print(f"{name:28} {python / 1000:10.3f} us {beside}   {value:8.2f} {unit} of {limit}{'' if is_met else '  MISSED'}")


def manager_calls(report):
    config = {"block_size": BLOCK, "model": MODEL, "device": {"blocks": 2 * BLOCKS, "memory": "system"}}
    with cairn.Manager(config) as manager:
        tokens = np.random.default_rng(0).integers(0, 100_000, BLOCK * BLOCKS, dtype=np.uint32)
        keys = manager.keys(tokens)
        manager.device.allocate(BLOCKS).complete(keys).register().release()
        pool, hasher = manager.device, manager.hasher

        empty = nanoseconds(lambda: None, 20_000)
        python = nanoseconds(lambda: manager.block_size, 20_000) - empty
        cpp = native(lambda: _cairn._bench_block_size(manager, 100_000))
        report.line("call", python, cpp, python - cpp, 150, "ns more")

        python = nanoseconds(lambda: pool.match_prefix(keys).release(), 200)
        cpp = native(lambda: _cairn._bench_match(pool, keys, 200))
        report.line("match of 6,250 keys", python, cpp, python / cpp, 1.1, "times")

        python = nanoseconds(lambda: cairn.hash_tokens(tokens, BLOCK, hasher), 100)
        cpp = native(lambda: _cairn._bench_hash(hasher, tokens, BLOCK, 100))
        report.line("keys of 100,000 tokens", python, cpp, python / cpp, 1.1, "times")


def scheduler_steps(report):
    config = {"block_size": BLOCK, "model": MODEL, "host": {"blocks": 8192, "pinning": "off"}}
    with cairn.Scheduler(config, device_blocks=8192) as scheduler:
        requests = []
        for i in range(BATCH):
            request = scheduler.add(i, np.arange(i * 1000, i * 1000 + 8, dtype=np.uint32))
            scheduler.match(request)
            scheduler.allocated(request, np.arange(32 * i, 32 * i + 32, dtype=np.uint32))
            requests.append(request)
        handles, computed = np.array(requests, np.uint64), np.zeros(BATCH, np.uint64)
        scheduler.build_columns(1, handles, computed)
        computed += 8
        tokens, offsets = np.arange(BATCH, dtype=np.uint32), np.arange(BATCH + 1, dtype=np.uint32)
        number, cpp, columns, objects = 1, [], [], []
        for _ in range(160):
            number += 1
            cpp.append(_cairn._bench_step(scheduler, number, requests, computed.tolist()))
            assert scheduler.refused == []
            computed += 1
            for times in (columns, objects):
                number += 1
                before = time.perf_counter_ns()
                scheduler.take_outcomes()
                if times is columns:
                    scheduler.build_columns(number, handles, computed, new_tokens=tokens, token_offsets=offsets)
                else:
                    done = computed.tolist()
                    scheduler.build(number, [cairn.Scheduled(request, at, (7,)) for request, at in zip(requests, done)])
                times.append(time.perf_counter_ns() - before)
                assert scheduler.refused == []
                computed += 1
        for name, times in (("step of 256, columns", columns), ("step of 256, objects", objects)):
            median = statistics.median(times)
            report.line(name, median, statistics.median(cpp), median / 1000, 100, "us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    report = Report()
    manager_calls(report)
    scheduler_steps(report)
    sys.exit(1 if arguments.check and report.missed else 0)


if __name__ == "__main__":
    main()
