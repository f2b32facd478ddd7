#!/usr/bin/env python3
"""What the vLLM connector costs the engine in each step: bench/vllm_bench.py [--lookups]

The scheduler's side with 256 running requests, a lookup of 100,000 tokens, the worker's side for each layer. With --lookups, which
needs vLLM, the lookup of a block against that of vLLM's own offload manager, in the same process. Times are the best of several
rounds, and of the calls alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "tests"))
from vllm_engine import BLOCK, Cache  # noqa: E402

import cairn  # noqa: E402
from cairn.vllm.scheduler_side import SchedulerSide  # noqa: E402


def scheduler_of(folder: str, blocks: int, host: int) -> cairn.Scheduler:
    """A scheduler without ranks: what is measured is the scheduler's thread."""
    return cairn.Scheduler(
        None,
        device_blocks=blocks,
        address=f"unix:{folder}/{os.urandom(4).hex()}.sock",
        block_size=16,
        host_blocks=host,
        host_pinning="off",
        onboard_weigh=False,
        model={"scheme": "vllm", "layers": 2, "kv": 1, "heads": 1, "head_size": 4, "element_type": "uint8"},
    )


def digests(count: int, seed: str) -> list[bytes]:
    return [hashlib.sha256(f"{seed}{i}".encode()).digest() for i in range(count)]


def decode_steps(folder: str, running: int, steps: int) -> float:
    """Microseconds of a step in which every request decodes one token."""
    side = SchedulerSide(scheduler_of(folder, 65536, 65536), 16)
    ids = [f"request-{i}" for i in range(running)]
    tokens = [list(range(1000)) for _ in ids]
    hashes = [digests(1000 // 16, name) for name in ids]
    for name, mine, theirs in zip(ids, tokens, hashes):
        side.add(name, mine, theirs)
        side.match(name, 0)
    blocks = [([64 * i + j for j in range(64)],) for i in range(running)]
    side.build(ids, [0] * running, blocks, {name: 1000 for name in ids}, set(ids))
    scheduled = dict.fromkeys(ids, 1)
    none = [None] * running
    best = 1e9
    for step in range(steps):
        for mine, theirs, name in zip(tokens, hashes, ids):
            mine.append(7)
            if len(mine) % 16 == 0:
                theirs.extend(digests(1, f"{name}{step}"))
        computed = [999 + step + 1] * running
        begin = time.perf_counter()
        side.take_outcomes()  # update_connector_output()
        side.build(ids, computed, none, scheduled)
        best = min(best, time.perf_counter() - begin)
        if 1001 + step + 1 > 64 * 16:
            break
    side.close()
    return best * 1e6


class Filled:
    """A cache whose host tier has a prompt of so many blocks."""

    def __init__(self, folder: str, blocks: int) -> None:
        self.cache = Cache(Path(folder), blocks=blocks + 8, **{"host.blocks": blocks + 8})
        self.tokens = list(range(blocks * BLOCK))
        self.digests = digests(blocks, "prompt")
        scheduler = self.cache.scheduler
        scheduler.add("cold", self.tokens, self.digests)
        scheduler.match("cold", 0)
        self.cache.step(scheduler.build(["cold"], [0], [(list(range(blocks)),)], {"cold": len(self.tokens)}, {"cold"}))
        assert scheduler.finish("cold", len(self.tokens))
        self.cache.idle_until(lambda received, sent, failed: sent)


def lookup(filled: Filled, rounds: int) -> float:
    """Microseconds of get_num_new_matched_tokens() for a prompt that the host tier has."""
    scheduler = filled.cache.scheduler
    scheduler.add("warm", [*filled.tokens, 1], filled.digests)
    best = 1e9
    for _ in range(rounds):
        begin = time.perf_counter()
        tokens, _ = scheduler.match("warm", 0)
        best = min(best, time.perf_counter() - begin)
        assert tokens == len(filled.tokens), tokens
    scheduler.finish("warm", None)
    return best * 1e6


def worker_step(folder: str, mode: str, layers: int, calls: bool, rounds: int = 500) -> float:
    """Microseconds of all of the worker's calls in a step without copies, but with the calls of each layer."""
    cache = Cache(Path(folder), load_mode=mode, layers=layers)
    worker, names = cache.worker, cache.layers if calls else []
    best = 1e9
    for _ in range(rounds):
        step = cache.scheduler.build([], [], [], {})
        begin = time.perf_counter()
        worker.bind(step)
        worker.bind(step)
        worker.start_load()
        for name in names:
            worker.wait_for_layer(name)
            worker.save_layer(name, lambda: None)
        worker.save_step()
        worker.take()
        best = min(best, time.perf_counter() - begin)
    cache.close()
    return best * 1e6


def offload_manager_lookup(count: int, rounds: int) -> float:
    """Microseconds a block of vLLM's CPUOffloadingManager, for blocks that it has: it is asked for one block at a time."""
    from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
    from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

    manager = CPUOffloadingManager(num_chunks=count + 1)
    keys = [make_offload_key(digest, 0) for digest in digests(count, "prompt")]
    context = ReqContext(req_id="request")
    manager.prepare_store(keys, context)
    manager.complete_store(keys, context)
    best = 1e9
    for _ in range(rounds):
        begin = time.perf_counter()
        found = sum(manager.lookup(key, context) is LookupResult.HIT for key in keys)
        best = min(best, time.perf_counter() - begin)
        assert found == count
    return best * 1e6 / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lookups", action="store_true", help="against vLLM's offload manager")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"scheduler's side, 256 running requests: {decode_steps(folder, 256, 20):.0f} us a step")
        filled = Filled(folder, 6250)
        best = lookup(filled, 50)
        print(f"get_num_new_matched_tokens, 6,250 blocks: {best:.0f} us, {best / 6250 * 1000:.0f} ns a block")
        for mode in ("async", "in_step"):
            none, many = worker_step(folder, mode, 100, False), worker_step(folder, mode, 100, True)
            print(f"worker's side, {mode}: {none:.1f} us a step, and {(many - none) / 100:.2f} us a layer")
        if arguments.lookups:
            theirs = offload_manager_lookup(6250, 20)
            print(f"vLLM's offload manager: {theirs * 1000:.0f} ns a block, {theirs / (best / 6250):.0f} times as much")
        filled.cache.close()


if __name__ == "__main__":
    main()
