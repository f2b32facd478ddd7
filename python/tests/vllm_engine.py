"""An engine that calls both sides of the vLLM connector as vLLM does, over a numpy KV cache; for tests without vLLM.

A page holds numbers that depend on the block's digest alone, so that a wrong block is seen at once.
"""

import hashlib
import itertools
import time

import numpy as np
from fake_torch import FakeTensor

import cairn
from cairn.vllm.pages import ModelFacts, describe
from cairn.vllm.scheduler_side import SchedulerSide
from cairn.vllm.worker_side import WorkerSide

BLOCK, LAYERS, HEADS, SIZE = 4, 3, 2, 8


def digests_of(tokens, salt=""):
    chain, parent = [], salt.encode()
    for i in range(len(tokens) // BLOCK):
        parent = hashlib.sha256(parent + repr(tokens[i * BLOCK : (i + 1) * BLOCK]).encode()).digest()
        chain.append(parent)
    return chain


class Cache:
    """Both sides of the connector, and the KV cache between them."""

    _names = itertools.count()

    def __init__(self, tmp_path, blocks=64, load_mode="async", options=None, block_size=BLOCK, layers=LAYERS, **keys):
        self.block_size = block_size
        page = HEADS * block_size * SIZE * 2
        self.kv = np.zeros((layers, blocks, HEADS, block_size, SIZE), dtype=np.uint16)
        self.in_step = load_mode == "in_step"
        address = f"unix:{tmp_path}/{next(self._names)}.sock"
        pages = describe({f"layers.{i}": FakeTensor(self.kv[i]) for i in range(layers)}, blocks, block_size, page)
        self.layers = list(pages.names)
        self.worker = WorkerSide(
            lambda: cairn.Worker(pages.group, leader=address), pages.names, in_step=self.in_step
        )
        model = ModelFacts("m", block_size, 1, 1, {"hash": "sha256"})
        keys = {"host.blocks": 64, "host.pinning": "off", "onboard.weigh": False, **keys, **model.keys(pages.facts)}
        scheduler = cairn.Scheduler(
            None, device_blocks=blocks, address=address, load_mode=load_mode, options=options or {}, **keys
        )
        scheduler.wait_for_ranks(30)
        self.scheduler = SchedulerSide(scheduler, block_size, in_step=self.in_step)

    def close(self):
        self.worker.close()
        self.scheduler.close()

    def content(self, digest):
        """What the model computes for the block of a digest: [layer, head, token, element]."""
        seed = int.from_bytes(digest[:8], "little")
        return np.random.default_rng(seed).integers(0, 65536, (len(self.layers), HEADS, self.block_size, SIZE), dtype=np.uint16)

    def compute(self, digests, blocks, first, end):
        """Fills the full blocks from `first` to `end`."""
        for i in range(first, min(end, len(digests), len(blocks))):
            self.kv[:, blocks[i]] = self.content(digests[i])

    def wrong_blocks(self, digests, blocks, end):
        return [i for i in range(min(end, len(digests))) if (self.kv[:, blocks[i]] != self.content(digests[i])).any()]

    def step(self, step, compute=lambda: None, early=False):
        """A step of the worker, as vLLM's model runner does it. `early`: outcomes are taken before the save (speculation)."""
        self.worker.bind(step)
        self.worker.bind(step)
        self.worker.start_load()
        if self.in_step:
            for layer in self.layers:
                self.worker.wait_for_layer(layer)
        compute()
        if self.in_step:
            for layer in self.layers:
                self.worker.save_layer(layer, lambda: None)
        if early:
            taken = self.worker.take()
            self.worker.save_step()
        else:
            self.worker.save_step()
            taken = self.worker.take()
        self.scheduler.received(taken.received)
        return taken

    def idle_until(self, condition, limit=30.0):
        """Steps without requests until the condition holds for what was taken so far."""
        received, sent, failed = set(), set(), set()
        deadline = time.monotonic() + limit
        while not condition(received, sent, failed):
            assert time.monotonic() < deadline, (received, sent, failed)
            taken = self.step(self.scheduler.build([], [], [], {}))
            received |= taken.received
            sent |= taken.sent
            failed |= taken.failed_blocks
        return received, sent, failed


class Request:
    """One request through its life, as vLLM's scheduler would drive it."""

    def __init__(self, cache, name, tokens, blocks, salt=""):
        self.cache, self.name, self.blocks, self.salt = cache, name, blocks, salt
        self.tokens, self.digests = list(tokens), digests_of(tokens, salt)
        self.computed = 0
        cache.scheduler.add(name, self.tokens, self.digests)

    def load(self, local=0):
        """Matches and, if there is something, allocates. Returns how many tokens are loaded."""
        tokens, waits = self.cache.scheduler.match(self.name, local)
        assert waits == (bool(tokens) and not self.cache.in_step)
        if tokens:
            self.cache.scheduler.allocated(self.name, self.blocks, tokens)
        self.computed = local + (tokens or 0)
        return tokens

    def run(self, count, first=True, early=False, preempted=()):
        """One step that computes so many tokens of it."""
        scheduler = self.cache.scheduler
        table = [(list(self.blocks),)] if first else [None]
        step = scheduler.build(
            [self.name], [self.computed], table, {self.name: count}, {self.name} if first else (), preempted
        )
        begin, end = self.computed // BLOCK, (self.computed + count) // BLOCK
        taken = self.cache.step(step, lambda: self.cache.compute(self.digests, self.blocks, begin, end), early)
        self.computed += count
        return taken

    def append(self, *tokens):
        self.tokens.extend(tokens)
        self.digests.extend(digests_of(self.tokens, self.salt)[len(self.digests) :])

    def finish(self, computed="all"):
        """Returns when its blocks are free."""
        held = self.cache.scheduler.finish(self.name, self.computed if computed == "all" else computed)
        if held:
            self.cache.idle_until(lambda received, sent, failed: self.name in sent)
        return held


def saved(cache, name, tokens, blocks, salt=""):
    """A prompt that is computed and saved."""
    request = Request(cache, name, tokens, blocks, salt)
    request.load()
    request.run(len(request.tokens) - request.computed)
    request.finish()
    return request
