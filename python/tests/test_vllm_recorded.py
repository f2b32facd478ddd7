"""Both sides of the vLLM connector with the calls of real runs of vLLM, which tests/engines/vllm/record_vllm.py wrote.

The replay computes what the recorded steps computed. Copies take other times than in the recorded run: where that run heard of the
end of a load, the replay waits for it.
"""

import hashlib
import json
from pathlib import Path

import pytest
from vllm_engine import Cache

RECORDED = json.loads((Path(__file__).parent / "vllm_calls.json").read_text())


class Replay:
    def __init__(self, recorded, tmp_path):
        self.cache = Cache(
            tmp_path, recorded["blocks"], recorded["load_mode"], block_size=recorded["block_size"], **{"host.blocks": 256}
        )
        self.block_size = recorded["block_size"]
        self.tokens, self.digests, self.tables, self.checked = {}, {}, {}, {}
        self.step = None
        self.received = set()
        self.loaded_tokens = 0

    def grow(self, request, news):
        count, digests = news
        self.tokens[request].extend([7] * count)
        self.digests[request].extend(hashlib.sha256(str(number).encode()).digest() for number in digests)

    def add(self, request, news):
        self.tokens[request], self.digests[request], self.tables[request] = [], [], []
        self.grow(request, news)
        self.cache.scheduler.add(request, self.tokens[request], self.digests[request])

    def match(self, request, local, result):
        tokens, waits = result
        if tokens:  # the saves of the recorded run had ended
            received, _, _ = self.cache.idle_until(lambda *_: not self.cache.scheduler.has_work())
            self.received |= received
        found, found_waits = self.cache.scheduler.match(request, local)
        assert found is not None and found >= (tokens or 0) and (not tokens or found_waits == waits)

    def allocated(self, request, blocks, tokens, _):
        self.cache.scheduler.allocated(request, blocks, tokens)
        self.tables[request] = list(blocks)
        self.checked[request] = tokens
        self.loaded_tokens += tokens

    def build(self, arguments, news):
        ids, computed, new_blocks, scheduled, whole, preempted = arguments
        for request in ids:
            self.grow(request, news[request])
        for request in preempted:
            self.tables[request] = []
        for request, blocks in zip(ids, new_blocks, strict=True):
            if blocks is not None:
                self.tables[request] = list(blocks[0]) if request in whole else self.tables[request] + blocks[0]
        tables = [None if blocks is None else tuple(blocks) for blocks in new_blocks]
        self.step = self.cache.scheduler.build(ids, computed, tables, scheduled, set(whole), set(preempted))
        assert self.step.failed == []
        self.work = [(request, at, at + scheduled[request]) for request, at in zip(ids, computed, strict=True)]

    def compute(self):
        for request, begin, end in self.work:
            loaded = self.checked.pop(request, 0)
            first = begin // self.block_size
            if loaded:  # what the request computes on
                assert self.cache.wrong_blocks(self.digests[request], self.tables[request], first) == []
            self.cache.compute(self.digests[request], self.tables[request], first, end // self.block_size)

    def taken(self, received, failed):
        assert failed == []
        mine = self.cache.step(self.step, self.compute)
        self.received |= mine.received
        assert mine.failed_blocks == set()
        if not set(received) <= self.received:
            more, _, missing = self.cache.idle_until(lambda so_far, *_: set(received) <= self.received | so_far)
            self.received |= more
            assert missing == set()
        self.received -= set(received)

    def finish(self, request, computed, _):
        self.cache.scheduler.finish(request, computed)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_calls(name, tmp_path):
    replay = Replay(RECORDED[name], tmp_path)
    try:
        for call, *arguments in RECORDED[name]["calls"]:
            getattr(replay, call)(*arguments)
        replay.cache.idle_until(lambda *_: not replay.cache.scheduler.has_work())
        saves = replay.cache.scheduler.scheduler.saves()
        assert saves.saved > 0 and saves.lost == 0
        total = replay.cache.scheduler.scheduler.counts().total
        assert total.loaded_host + total.reloaded == replay.loaded_tokens > 0
    finally:
        replay.cache.close()
