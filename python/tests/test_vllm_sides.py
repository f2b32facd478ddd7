"""Both sides of the vLLM connector, with the calls that vLLM makes."""

import logging

import pytest
from vllm_engine import BLOCK, Cache, Request, saved

from cairn.vllm import metrics
from cairn.vllm.events import EventTranslator
from cairn.vllm.steps import Step

PROMPT = list(range(10, 10 + 4 * BLOCK + 1))


@pytest.fixture(params=["async", "in_step"])
def cache(request, tmp_path):
    made = Cache(tmp_path, load_mode=request.param)
    yield made
    made.close()


@pytest.fixture
def waiting(tmp_path):
    """A cache whose requests wait for their loads."""
    made = Cache(tmp_path)
    yield made
    made.close()


def test_a_warm_prompt_is_loaded(cache):
    saved(cache, "cold", PROMPT, [5, 3, 8, 1, 2])
    cache.kv[:] = 0
    request = Request(cache, "warm", PROMPT, [20, 21, 22, 23, 24])
    assert request.load() == 16
    assert cache.scheduler.sources("warm", 16) == (16, 0)
    if cache.in_step:
        assert request.run(1).failed_blocks == set()
    else:
        received, _, failed = cache.idle_until(lambda received, sent, failed: received)
        assert received == {"warm"} and failed == set()
        request.run(1)
    assert cache.wrong_blocks(request.digests, request.blocks, 4) == []
    request.finish()
    assert cache.scheduler.scheduler.counts().total.loaded_host == 16
    assert not cache.scheduler.has_work()


def test_another_salt_is_another_prompt(cache):
    saved(cache, "cold", PROMPT, [5, 3, 8, 1, 2], salt="a")
    request = Request(cache, "other", PROMPT, [20, 21, 22, 23, 24], salt="b")
    assert request.load() == 0
    request.run(17)
    request.finish()


def test_chunks_and_generated_tokens_are_saved(cache):
    request = Request(cache, "a", PROMPT, list(range(10, 20)))
    request.load()
    request.run(8)
    request.run(9, first=False)
    for token in range(3 * BLOCK):
        request.append(500 + token)
        request.run(1, first=False)
    request.finish()  # held, unless the last save has ended already
    assert cache.scheduler.scheduler.saves().saved == 7
    again = Request(cache, "b", request.tokens, list(range(30, 40)))
    assert again.load() == 7 * BLOCK


def test_only_what_is_missing_locally_is_loaded(waiting):
    saved(waiting, "cold", PROMPT, [5, 3, 8, 1, 2])
    request = Request(waiting, "warm", PROMPT, [5, 3, 22, 23, 24])
    waiting.kv[:, 22:25] = 0
    assert request.load(local=8) == 8
    waiting.idle_until(lambda received, sent, failed: received)
    assert waiting.wrong_blocks(request.digests, request.blocks, 4) == []
    request.run(1)
    request.finish()


def test_outcomes_that_are_taken_before_the_save(cache):
    """vLLM's model runner does so if a drafter runs after the model."""
    request = Request(cache, "a", PROMPT, [5, 3, 8, 1, 2])
    request.load()
    request.run(17, early=True)
    request.finish()
    cache.kv[:] = 0
    warm = Request(cache, "b", PROMPT, [20, 21, 22, 23, 24])
    assert warm.load() == 16
    if not cache.in_step:
        cache.idle_until(lambda received, sent, failed: received)
    warm.run(1, early=True)
    assert cache.wrong_blocks(warm.digests, warm.blocks, 4) == []


def test_a_request_that_is_aborted_in_every_state(waiting):
    saved(waiting, "cold", PROMPT, [5, 3, 8, 1, 2])
    never_matched = Request(waiting, "1", PROMPT, [20, 21, 22, 23, 24])
    assert never_matched.finish(None) is False
    matched = Request(waiting, "2", PROMPT, [20, 21, 22, 23, 24])
    waiting.scheduler.match("2", 0)
    assert matched.finish(None) is False
    loading = Request(waiting, "3", PROMPT, [20, 21, 22, 23, 24])
    assert loading.load() == 16
    step = waiting.scheduler.build([], [], [], {})
    held = waiting.scheduler.finish("3", None)
    first = waiting.step(step)
    if held and "3" not in first.received:
        received, sent, _ = waiting.idle_until(lambda received, sent, failed: received)
        assert received == {"3"} and "3" not in sent
    loaded = Request(waiting, "4", PROMPT, [30, 31, 32, 33, 34])
    assert loaded.load() == 16
    received, _, _ = waiting.idle_until(lambda received, sent, failed: received)
    assert received == {"4"} and waiting.scheduler.finish("4", None) is False
    running = Request(waiting, "5", [*PROMPT, 1, 2, 3], [40, 41, 42, 43, 44])
    running.load()
    waiting.idle_until(lambda received, sent, failed: received)
    running.run(4)
    running.finish(None)
    # Nothing that an abort left undone is in the way of the next one.
    request = Request(waiting, "6", PROMPT, [20, 21, 22, 23, 24])
    waiting.kv[:] = 0
    assert request.load() == 16
    waiting.idle_until(lambda received, sent, failed: received)
    assert waiting.wrong_blocks(request.digests, request.blocks, 4) == []


def test_a_preempted_request_loads_what_it_had_saved(waiting):
    request = Request(waiting, "a", PROMPT, [5, 3, 8, 1, 2])
    request.load()
    request.run(17)
    request.append(7)
    request.run(1, first=False)
    waiting.idle_until(lambda received, sent, failed: waiting.scheduler.scheduler.saves().saved == 4)
    waiting.step(waiting.scheduler.build([], [], [], {}, (), {"a"}))
    waiting.kv[:] = 0
    request.blocks = [30, 31, 32, 33, 34]
    assert request.load() == 16
    waiting.idle_until(lambda received, sent, failed: received)
    assert waiting.wrong_blocks(request.digests, request.blocks, 4) == []
    request.run(2)
    request.finish()


def test_a_load_that_cairn_refuses_is_reported_as_failed(waiting, caplog):
    saved(waiting, "cold", PROMPT, [5, 3, 8, 1, 2])
    request = Request(waiting, "warm", PROMPT, [20, 21, 22, 22, 24])  # a block twice
    with caplog.at_level(logging.ERROR, "vllm.cairn"):
        assert request.load() == 16
    assert "refused" in caplog.text
    taken = waiting.step(waiting.scheduler.build([], [], [], {}))
    assert taken.received == {"warm"} and taken.failed_blocks == {20, 21, 22}


def test_a_load_of_blocks_that_another_request_has_is_reported_as_failed(waiting):
    saved(waiting, "cold", PROMPT, [5, 3, 8, 1, 2])
    running = Request(waiting, "running", list(range(900, 917)), [20, 21, 22, 23, 24])
    running.load()
    running.run(17)
    request = Request(waiting, "warm", PROMPT, [20, 21, 22, 23, 24])
    assert request.load() == 16
    taken = waiting.step(waiting.scheduler.build([], [], [], {}))
    assert taken.received == {"warm"} and taken.failed_blocks == {20, 21, 22, 23}
    assert waiting.scheduler.finish("warm", None) is False


def test_damage_is_a_miss(tmp_path):
    """Bytes that changed on disk are not loaded, and the engine hears which blocks it has to compute."""
    disk = {"disk.path": str(tmp_path / "blocks"), "disk.blocks": 32, "disk.direct": False}
    cache = Cache(tmp_path, **disk)
    saved(cache, "cold", PROMPT, [5, 3, 8, 1, 2])
    cache.idle_until(lambda *_: [t for t in cache.scheduler.scheduler.status().tiers if t.tier == "G3"][0].registered == 4)
    page = cache.kv[0, 8].tobytes()  # the third block
    cache.close()
    file = next(path for path in tmp_path.iterdir() if path.name.startswith("blocks.") and page in path.read_bytes())
    with file.open("r+b") as opened:
        opened.seek(file.read_bytes().index(page))
        opened.write(bytes(len(page)))
    cache = Cache(tmp_path, **disk)
    request = Request(cache, "warm", PROMPT, [20, 21, 22, 23, 24])
    assert request.load() == 16
    assert cache.scheduler.sources("warm", 16) == (0, 16)
    received, _, failed = cache.idle_until(lambda received, sent, failed: received)
    assert received == {"warm"} and failed == {22, 23}
    assert cache.wrong_blocks(request.digests, request.blocks, 2) == []
    request.computed = 8  # what vLLM does: the blocks before the first that failed are good
    request.run(9)
    assert cache.scheduler.short_loads == 1
    request.finish()
    cache.close()


def test_a_worker_without_a_scheduler_says_so_and_goes_on(tmp_path, caplog):
    from cairn.vllm.worker_side import WorkerSide

    def connect():
        raise OSError("no leader")

    worker = WorkerSide(connect, {})
    worker.bind(Step(b"", released=["a"]))
    worker.start_load()
    worker.save_step()
    assert worker.take().sent == {"a"}
    assert "without a cache: no leader" in caplog.text
    worker.close()


def test_figures_add_up(waiting):
    reporter = metrics.Reporter(waiting.scheduler.scheduler, interval=0)
    saved(waiting, "cold", PROMPT, [5, 3, 8, 1, 2])
    first = reporter.report(0)
    assert first["counters"]["prompt_tokens"] == {"computed": 17} and first["counters"]["saved_tokens"] == {"": 16}
    assert first["gauges"]["stored_blocks"] == {"host": 4} and first["gauges"]["tier_up"] == {"host": 1.0}
    request = Request(waiting, "warm", PROMPT, [20, 21, 22, 23, 24])
    request.load()
    waiting.idle_until(lambda received, sent, failed: received)
    request.run(1)
    second = reporter.report(2)
    assert second["counters"]["prompt_tokens"] == {"host": 16, "computed": 1}
    both = metrics.add(first, second)
    assert both["counters"]["prompt_tokens"] == {"host": 16, "computed": 18}
    assert metrics.summary(both)["failed_loads"] == 2 and metrics.summary(both)["stored_blocks host"] == 4
    assert set(both["counters"]) <= set(metrics.COUNTERS) and set(both["gauges"]) == set(metrics.GAUGES)
    assert metrics.Reporter(waiting.scheduler.scheduler).report(0) is not None
    slow = metrics.Reporter(waiting.scheduler.scheduler)
    slow.report(0)
    assert slow.report(0) is None


def test_events_name_blocks_by_the_engines_digests(tmp_path):
    cache = Cache(tmp_path, **{"host.blocks": 4})
    translator = EventTranslator(cache.scheduler.scheduler.manager)
    cache.scheduler.events = translator
    request = Request(cache, "a", PROMPT, [5, 3, 8, 1, 2])
    request.load()
    request.run(17)
    for token in range(BLOCK):
        request.append(700 + token)
        request.run(1, first=False)
    request.finish()
    events = list(translator.take())
    stored = [digest for event in events if event.stored for digest in event.digests]
    removed = [digest for event in events if not event.stored for digest in event.digests]
    assert all(event.tier == "host" for event in events)
    assert set(stored) == set(request.digests) and len(stored) - len(removed) == 4
    first = next(event for event in events if event.stored)
    assert first.parent is None and first.digests[0] == request.digests[0]
    assert all(event.parent == request.digests[request.digests.index(event.digests[0]) - 1] for event in events[1:] if event.stored)
    cache.scheduler.reset()
    cleared = [digest for event in translator.take() for digest in event.digests]
    assert sorted(cleared) == sorted(set(stored) - set(removed))
    # What nobody stores is not remembered.
    other = Request(cache, "b", list(range(800, 809)), [10, 11, 12])
    cache.scheduler.finish("b", None)
    assert translator._digests == {} and len(other.digests) == 2
    cache.close()
