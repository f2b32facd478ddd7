#!/usr/bin/env python3
"""An engine's scheduler and its one worker on the package `cairn`.

A prompt with an image is computed, saved while it runs, and loaded for the next request that begins with the same tokens and
the same image. The "KV cache" is a numpy array: [layer][K/V][block][token][head][element]; torch tensors work the same way.
"""

import time

import numpy as np

import cairn

PAGE, DEVICE_BLOCKS, LAYERS, HEADS, SIZE, PROMPT = 4, 32, 2, 2, 8, 18
IMAGE = range(9, 14)  # tokens of the prompt that stand for an image
CONFIG = {
    "block_size": PAGE,
    "model": {"name": "example", "layers": LAYERS, "heads": HEADS, "head_size": SIZE, "element_type": "f32"},
    "host": {"blocks": 64},
    "onboard": {"weigh": False},  # this engine is so small that it computes faster than anything is loaded
}


class Engine:
    """One scheduler, one worker, one KV cache."""

    def __init__(self) -> None:
        self.iteration = 0
        self.kv = np.zeros((LAYERS, 2, DEVICE_BLOCKS, PAGE, HEADS, SIZE), dtype=np.float32)
        self.scheduler = cairn.Scheduler(CONFIG, device_blocks=DEVICE_BLOCKS)
        group = cairn.KvGroup(self.kv, "layer kv block token head element", layers=[f"layers.{i}" for i in range(LAYERS)])
        self.worker = cairn.Worker(group, scheduler=self.scheduler)
        self.scheduler.wait_for_ranks(10)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *args: object) -> None:
        self.worker.close()
        self.scheduler.close()

    @staticmethod
    def computed(token: int) -> np.ndarray:
        """What the model computes for a token: [layer, K/V, 1, 1]."""
        return 100.0 * np.arange(LAYERS)[:, None, None, None] + 10.0 * np.arange(2)[:, None, None] + token + 1

    def step(self, scheduled: list[cairn.Scheduled], blocks: list[int], first: int, last: int) -> None:
        self.iteration += 1
        self.worker.bind(self.scheduler.build(self.iteration, scheduled))
        self.worker.start_load()
        for token in range(first, last):
            self.kv[:, :, blocks[token // PAGE], token % PAGE] = self.computed(token)
        self.worker.save_step()
        assert self.worker.take_outcomes().failed_blocks == []

    def outcomes(self, attribute: str) -> list:
        """Waits until an outcome of this kind comes."""
        while not (found := getattr(self.scheduler.take_outcomes(), attribute)):
            time.sleep(0)
        return found

    def run(self, name: str, blocks: list[int], image: int) -> int:
        """A request through its prefill; returns how many tokens were loaded instead of computed."""
        tokens = np.array([99 if i in IMAGE else 7 * i for i in range(PROMPT)], dtype=np.uint32)
        run = cairn.MmRun(offset=IMAGE[0], length=len(IMAGE), mm_hash=image)
        request = self.scheduler.add(name, tokens, mm_runs=[run])
        match = self.scheduler.match(request)
        self.scheduler.allocated(request, blocks, loaded_tokens=match.tokens)
        if match.when == "later":
            self.step([], blocks, 0, 0)
            assert self.outcomes("loaded")[0].missing == 0
            for token in range(match.tokens):
                rows = self.kv[:, :, blocks[token // PAGE], token % PAGE]
                assert (rows == self.computed(token)).all(), "what was loaded is what was computed before"
        self.step([cairn.Scheduled(request, match.tokens)], blocks, match.tokens, PROMPT)
        held = self.scheduler.finish(request, PROMPT)
        self.step([], blocks, 0, 0)  # starts the saves
        if held:
            assert self.outcomes("released") == [name]
        return match.tokens


def main() -> None:
    with Engine() as engine:
        assert engine.run("first", [3, 1, 4, 15, 9], image=0xCA7) == 0
        engine.kv[:] = 0
        loaded = engine.run("second", [2, 6, 5, 30, 0], image=0xCA7)
        assert loaded == 16, loaded
        host = next(tier for tier in engine.scheduler.status().tiers if tier.tier == "G2")
        assert host.registered == 4, host
        third = engine.run("third", [7, 8, 10, 11, 12], image=0xD06)
        assert third == 8, "another image: only what is before it is the same"
    print(f"Cairn {cairn.__version__}: {loaded} of {PROMPT} tokens loaded instead of computed")


if __name__ == "__main__":
    main()
