"""cairn.EngineRequests: requests whose tokens and digests the engine keeps in lists."""

import hashlib

import numpy as np
import pytest
from managers import BLOCK

import cairn

LAYERS, PAGE, BLOCKS = 2, 64, 32


def digests_of(tokens):
    """A chain of digests, as vLLM makes them."""
    chain, parent = [], b""
    for i in range(len(tokens) // BLOCK):
        parent = hashlib.sha256(parent + repr(tokens[i * BLOCK : (i + 1) * BLOCK]).encode()).digest()
        chain.append(parent)
    return chain


class Engine:
    def __init__(self, **options):
        config = {
            "block_size": BLOCK,
            "model": {"name": "m", "scheme": "vllm", "layers": LAYERS, "kv": 1, "heads": 1, "head_size": PAGE // BLOCK,
                      "element_type": "uint8"},
            "host": {"blocks": 64, "pinning": "off"},
            "onboard": {"weigh": False},
        }
        self.scheduler = cairn.Scheduler(config, device_blocks=BLOCKS, **options)
        self.requests = cairn.EngineRequests(self.scheduler)
        self.kv = np.zeros((LAYERS, BLOCKS, BLOCK, 1, PAGE // BLOCK), dtype=np.uint8)
        self.worker = cairn.Worker(
            cairn.KvGroup(self.kv, "layer block token head element", layers=["a", "b"]), scheduler=self.scheduler
        )
        self.scheduler.wait_for_ranks(10)
        self.number = 0

    def close(self):
        self.worker.close()
        self.scheduler.close()

    def step(self, ids=(), computed=(), blocks=(), scheduled=None, whole=(), preempted=(), writes=None):
        self.number += 1
        metadata, refused = self.requests.build(
            self.number, list(ids), list(computed), list(blocks), scheduled or {}, whole, preempted
        )
        self.worker.bind(metadata)
        self.worker.start_load()
        for block, value in (writes or {}).items():
            self.kv[:, block] = value
        self.worker.save_step()
        self.worker.take_outcomes()
        return refused

    def until_released(self, name):
        while name not in self.scheduler.take_outcomes().released:
            self.step()

    def until_loaded(self):
        while not (loaded := self.scheduler.take_outcomes().loaded):
            self.step()
        return loaded[0]


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.close()


def run(engine, name, tokens, blocks):
    """Computes a prompt and saves its full blocks."""
    digests = digests_of(tokens)
    engine.requests.add(name, tokens, digests)
    match = engine.requests.match(name)
    refused = engine.step([name], [0], [(blocks,)], {name: len(tokens)}, {name}, writes={b: b + 1 for b in blocks})
    assert refused == []
    if engine.requests.finish(name, len(tokens)):
        engine.until_released(name)
    assert name not in engine.requests
    return match


def test_a_prompt_is_saved_and_loaded_by_its_digests(engine):
    tokens = list(range(4 * BLOCK + 1))
    assert run(engine, "a", tokens, [3, 1, 4, 15, 9]).tokens == 0
    assert engine.scheduler.saves().saved == 4
    engine.kv[:] = 0
    engine.requests.add("b", list(tokens), digests_of(tokens))
    match = engine.requests.match("b")
    assert (match.tokens, match.disk_tokens, match.when) == (16, 0, "later")
    table = [20, 21, 22, 23]
    engine.requests.allocated("b", table, loaded_tokens=16)
    engine.step()
    assert engine.until_loaded().tokens == 16
    assert [int(engine.kv[0, block, 0, 0, 0]) for block in table] == [4, 2, 5, 16]
    # The whole table comes when the request runs: what is known of it is not taken twice.
    assert engine.step(["b"], [16], [(table + [24],)], {"b": 1}, {"b"}) == []
    assert len(engine.requests) == 1
    engine.requests.finish("b", 17)


def test_what_the_engine_appends_is_read_in_the_next_step(engine):
    tokens = list(range(BLOCK))
    digests = digests_of(tokens)
    engine.requests.add("a", tokens, digests)
    engine.requests.match("a")
    assert engine.step(["a"], [0], [([5, 6],)], {"a": BLOCK}, {"a"}, writes={5: 7}) == []
    for i in range(BLOCK):
        tokens.append(100 + i)
        digests[:] = digests_of(tokens)
        assert engine.step(["a"], [BLOCK + i], [None], {"a": 1}) == []
    assert engine.step(["a"], [2 * BLOCK], [([7],)], {"a": 1}) == []
    assert engine.requests.finish("a", 2 * BLOCK)
    engine.until_released("a")
    assert engine.scheduler.saves().saved == 2


def test_drafts_count_when_they_are_known(engine):
    """The engine schedules drafts and says that they are computed: only tokens that it has appended are."""
    tokens = list(range(BLOCK))
    digests = digests_of(tokens)
    engine.requests.add("a", tokens, digests)
    engine.requests.match("a")
    engine.step(["a"], [0], [([5, 6],)], {"a": BLOCK}, {"a"})
    tokens.append(90)
    assert engine.step(["a"], [BLOCK], [None], {"a": 4}) == []  # one token and three drafts
    assert engine.step(["a"], [BLOCK + 4], [None], {"a": 4}) == []  # scheduled ahead: nothing is known of the drafts
    tokens += [91, 92]  # one draft was right, and there is one token more
    digests[:] = digests_of(tokens)
    assert engine.step(["a"], [BLOCK + 2], [None], {"a": 4}) == []
    assert engine.requests.finish("a", BLOCK + 6)
    engine.until_released("a")
    assert engine.scheduler.saves().saved == 1


def test_a_preempted_request_comes_back_with_another_table(engine):
    tokens = list(range(4 * BLOCK))
    digests = digests_of(tokens)
    engine.requests.add("a", tokens, digests)
    engine.requests.match("a")
    engine.step(["a"], [0], [([1, 2, 3, 4],)], {"a": 16}, {"a"}, writes={1: 11, 2: 12, 3: 13, 4: 14})
    assert engine.step([], [], [], {}, (), {"a"}) == []
    match = engine.requests.match("a")
    engine.requests.allocated("a", [8, 9, 10], loaded_tokens=match.tokens) if match.tokens else None
    if match.tokens:
        engine.step()
        engine.until_loaded()
    assert engine.step(["a"], [match.tokens], [([8, 9, 10, 11],)], {"a": 4}, {"a"}) == []
    engine.requests.finish("a", None)


def test_blocks_that_the_engine_took_back_unsaid_are_dropped(engine):
    """After a load that brought nothing vLLM frees the request's blocks and asks again, without a preemption."""
    tokens = list(range(2 * BLOCK + 1))
    engine.requests.add("a", tokens, digests_of(tokens))
    engine.requests.match("a")
    assert engine.step(["a"], [0], [([1, 2, 3],)], {"a": 9}, {"a"}) == []
    assert engine.requests.match("a").tokens == 0
    engine.requests.add("b", list(range(100, 104)), digests_of(list(range(100, 104))))
    engine.requests.match("b")
    assert engine.step(["b"], [0], [([1],)], {"b": 4}, {"b"}) == []  # it has a block of "a" now
    assert engine.step(["a"], [0], [([4, 5, 6],)], {"a": 9}, {"a"}) == []
    # A table that changed without a word is the same.
    assert engine.step(["a"], [0], [([7, 8, 9],)], {"a": 9}, {"a"}) == []
    engine.requests.finish("a", None)
    engine.requests.finish("b", None)


def test_lists_that_shrink_cost_the_cache_of_the_request_alone(engine):
    tokens = list(range(2 * BLOCK))
    engine.requests.add("a", tokens, digests_of(tokens))
    engine.requests.add("b", list(tokens), digests_of(tokens))
    for name in "ab":
        engine.requests.match(name)
    assert engine.step(["a", "b"], [0, 0], [([1, 2],), ([3, 4],)], {"a": 8, "b": 8}, {"a", "b"}) == []
    del tokens[5:]
    refused = engine.step(["a", "b"], [4, 8], [None, ([5],)], {"a": 1, "b": 1})
    assert [name for name, _ in refused] == ["a"] and "took back tokens" in refused[0][1]
    assert engine.step(["a", "b"], [4, 8], [None, None], {"a": 1, "b": 1}) == []
    assert engine.requests.match("a").tokens == 0
    engine.requests.finish("a", 5)
    assert engine.requests.finish("b", 8)


def test_what_is_refused(engine):
    with pytest.raises(cairn.NotFoundError):
        engine.requests.match("nobody")
    with pytest.raises(cairn.NotFoundError):
        engine.requests.finish("nobody")
    with pytest.raises(cairn.InvalidArgumentError, match="for 1 requests"):
        engine.requests.build(1, ["a"], [], [], {})
    with pytest.raises(cairn.InvalidArgumentError, match="negative"):
        engine.requests.add("a", [1, -1], [])
    with pytest.raises(TypeError):
        engine.requests.add("a", list(range(BLOCK)), ["text"])
    engine.requests.add("a", [1, 2, 3], [])  # no full block
    with pytest.raises(cairn.AlreadyExistsError):
        engine.requests.add("a", [1, 2, 3], [])
    with pytest.raises(cairn.InvalidArgumentError, match="neither None"):
        engine.requests.build(1, ["a"], [0], [7], {})
    assert engine.step(["a", "unknown"], [0, 0], [([1],), ([2],)], {"a": 3}, {"a"}) == []
    assert engine.requests.finish("a", 3) is False


def test_a_step_that_fails_leaves_its_requests_without_a_cache(engine):
    one, other = list(range(2 * BLOCK)), list(range(100, 100 + BLOCK))
    for name, tokens in (("one", one), ("other", other)):
        engine.requests.add(name, tokens, digests_of(tokens))
        engine.requests.match(name)
    one.extend(range(BLOCK))  # read in the step that fails
    engine.number += 1
    with pytest.raises(cairn.OutOfRangeError, match="a block id is 4294967296"):
        engine.requests.build(engine.number, ["one", "other"], [0, 0], [([1, 2, 3],), ([1 << 32],)], {}, {"one", "other"})
    # What the engine says of them afterwards is not taken: the tokens of that step are missing.
    one.extend(range(BLOCK))
    refused = engine.step(["one"], [0], [([1, 2, 3, 4],)], {"one": len(one)}, {"one"}, writes={b: b for b in (1, 2, 3, 4)})
    assert refused == []
    assert engine.requests.match("one").tokens == 0
    if engine.requests.finish("one", len(one)):
        engine.until_released("one")
    assert engine.scheduler.saves().asked == 0
    assert run(engine, "new", [7] * BLOCK, [5]).tokens == 0, "the scheduler works on"
