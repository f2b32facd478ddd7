#!/usr/bin/env python3
"""A toy engine in numpy with a KV cache in tiers: device memory of 24 blocks, host memory, and a file.

The model is one layer of attention with random weights: what it says depends on every token before. Conversations are continued
in turn; all of them together need more than the device holds. The engine asks the manager for the longest cached prefix,
computes the rest into new blocks, and registers them; Cairn copies them down and evicts them. Every answer is checked
against an engine without a cache.
"""

import tempfile
from pathlib import Path

import numpy as np

import cairn

BLOCK, HEADS, SIZE, WORDS = 8, 2, 16, 97  # tokens in a block; heads and their size; words of the vocabulary
WIDTH = HEADS * SIZE


class Model:
    """Tokens in, KV and the next token out."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.embed, self.out = (random.standard_normal(shape) for shape in ((WORDS, WIDTH), (WIDTH, WORDS)))
        self.query, self.key, self.value = (random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(3))

    def kv(self, tokens: np.ndarray, position: int) -> np.ndarray:
        """[K/V, token, head, element]"""
        x = self.embed[tokens] + np.sin(np.arange(position, position + len(tokens)))[:, None]
        return np.stack([x @ self.key, x @ self.value]).reshape(2, len(tokens), HEADS, SIZE).astype(np.float32)

    def next(self, token: int, kv: np.ndarray) -> int:
        """Attends from the last token over the KV of all tokens."""
        query = (self.embed[token] @ self.query).reshape(HEADS, SIZE)
        scores = np.einsum("hd,thd->ht", query, kv[0]) / SIZE**0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        attended = np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), kv[1])
        return int((attended.reshape(-1) @ self.out).argmax())


class Engine:
    """Answers prompts, with what the tiers have cached."""

    def __init__(self, model: Model, manager: cairn.Manager) -> None:
        self.model, self.manager = model, manager
        self.memory = manager.memory("device").layer(0).numpy()  # [block, K/V, token, head, element]
        self.loaded = self.computed = 0

    def answer(self, tokens: list[int], length: int) -> list[int]:
        """The next `length` tokens."""
        keys = self.manager.keys(tokens)
        cached = self.manager.load(keys).wait().blocks
        count = len(cached)
        parts = [self.memory[block_id] for block_id in cached.block_ids]
        rest = self.model.kv(np.array(tokens[count * BLOCK :]), count * BLOCK)
        if len(keys) > count:  # full blocks are cached; the tail stays with the request
            new = self.manager.device.allocate(len(keys) - count)
            for i, block_id in enumerate(new.block_ids):
                self.memory[block_id] = rest[:, i * BLOCK : (i + 1) * BLOCK]
            new.complete(keys[count:]).register().release()
        kv = np.concatenate([*parts, rest], axis=1)
        cached.release()
        self.loaded += count * BLOCK
        self.computed += len(tokens) - count * BLOCK
        said: list[int] = []
        for _ in range(length):
            said.append(self.model.next((tokens + said)[-1], kv))
            kv = np.concatenate([kv, self.model.kv(np.array(said[-1:]), len(tokens) + len(said) - 1)], axis=1)
        return said


def main(chats: int = 6, turns: int = 8) -> None:
    config = {
        "block_size": BLOCK,
        "model": {"name": "toy", "layers": 1, "heads": HEADS, "head_size": SIZE, "element_type": "f32"},
        "device": {"blocks": 24, "memory": "system"},
        "host": {"blocks": 40},
        "onboard": {"weigh": False},  # a toy computes faster than anything is loaded
    }
    model, random = Model(), np.random.default_rng(1)
    system = random.integers(0, WORDS, 4 * BLOCK).tolist()  # all chats begin with it
    said = [system + random.integers(0, WORDS, BLOCK).tolist() for _ in range(chats)]
    with tempfile.TemporaryDirectory() as folder:
        disk = {"blocks": 256, "path": str(Path(folder) / "blocks")}
        with cairn.Manager(config, disk=disk) as manager:
            engine = Engine(model, manager)
            for turn in range(turns):
                for chat in said:
                    reply = engine.answer(chat, length=5)
                    kv = model.kv(np.array(chat), 0)
                    assert reply[0] == model.next(chat[-1], kv), "the cache has changed an answer"
                    chat += reply + random.integers(0, WORDS, 4).tolist()
                manager.drain()
            hits = manager.status().onboard.hits
    print(f"{engine.loaded} tokens came from the cache, {engine.computed} were computed; blocks by tier: {hits.to_dict()}")
    assert engine.loaded > engine.computed and hits.host > 0 and hits.device > 0


if __name__ == "__main__":
    main()
