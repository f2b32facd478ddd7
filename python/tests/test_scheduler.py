import threading

import numpy as np
import pytest
from managers import BLOCK

import cairn

LAYERS, HEADS, SIZE, BLOCKS = 2, 2, 8, 64


def config(**keys):
    return {
        "block_size": BLOCK,
        "model": {"name": "small", "layers": LAYERS, "heads": HEADS, "head_size": SIZE, "element_type": "f32"},
        "host": {"blocks": 64, "pinning": "off"},
        "onboard": {"weigh": False},
        **keys,
    }


class Engine:
    """A scheduler and a worker over one numpy array; what a block holds is a number."""

    def __init__(self, **options):
        self.scheduler = cairn.Scheduler(config(), device_blocks=BLOCKS, **options)
        self.kv = np.zeros((LAYERS, 2, BLOCKS, BLOCK, HEADS, SIZE), dtype=np.float32)
        self.worker = cairn.Worker(
            cairn.KvGroup(self.kv, "layer kv block token head element", layers=["a", "b"]), scheduler=self.scheduler
        )
        self.scheduler.wait_for_ranks(10)
        self.number = 0

    def close(self):
        self.worker.close()
        self.scheduler.close()

    def step(self, metadata=None, writes=None):
        if metadata is None:
            self.number += 1
            metadata = self.scheduler.build(self.number)
        self.worker.bind(metadata)
        self.worker.start_load()
        for block, value in (writes or {}).items():
            self.kv[:, :, block] = value
        self.worker.save_step()
        return self.worker.take_outcomes()

    def until(self, condition):
        outcomes = {"loaded": [], "released": [], "ended": {}}
        while not condition(outcomes):
            more = self.scheduler.take_outcomes()
            outcomes["loaded"] += more.loaded
            outcomes["released"] += more.released
            outcomes["ended"] |= more.ended
            self.step()
        return outcomes


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.close()


def save(engine, name, tokens, blocks, columns=False):
    scheduler = engine.scheduler
    request = scheduler.add(name, tokens)
    match = scheduler.match(request)
    scheduler.allocated(request, blocks, loaded_tokens=0)
    engine.number += 1
    if columns:
        metadata = scheduler.build_columns(engine.number, np.array([request], np.uint64), np.zeros(1, np.uint64))
    else:
        metadata = scheduler.build(engine.number, [cairn.Scheduled(request, 0)])
    assert scheduler.refused == []
    engine.step(metadata, {block: block + 100 for block in blocks})
    assert scheduler.finish(request, len(tokens))
    outcomes = engine.until(lambda so_far: so_far["released"])
    assert outcomes["released"] == [name]
    return match, outcomes["ended"][request]


@pytest.mark.parametrize("columns", [False, True])
def test_a_prompt_is_saved_and_loaded_for_the_next_request(engine, columns):
    tokens = np.arange(4 * BLOCK + 1, dtype=np.uint32)
    match, counts = save(engine, "a", tokens, [3, 1, 4, 15, 9], columns)
    assert (match.tokens, match.when) == (0, "now")
    assert (counts.saved, counts.computed, counts.asked) == (16, 17, 17)
    assert engine.scheduler.saves().saved == 4

    engine.kv[:] = 0
    scheduler = engine.scheduler
    request = scheduler.add(7, tokens.tolist())
    match = scheduler.match(request)
    assert (match.tokens, match.when) == (16, "later")
    scheduler.allocated(request, [20, 21, 22, 23, 24], loaded_tokens=16)
    assert scheduler.state(request).startswith("OnboardStaged")
    engine.step()
    loaded = engine.until(lambda so_far: so_far["loaded"])["loaded"][0]
    assert (loaded.request, loaded.tokens, loaded.missing) == (request, 16, 0)
    for block, value in zip([20, 21, 22, 23], [103, 101, 104, 115], strict=True):
        assert (engine.kv[:, :, block] == value).all()
    engine.number += 1
    engine.step(scheduler.build(engine.number, [cairn.Scheduled(request, 16)]))
    assert scheduler.counts(request).loaded_host == 16
    assert scheduler.find(7) == request
    with pytest.raises(cairn.InvalidArgumentError, match="unknown ending"):
        scheduler.finish(request, 17, "bored")
    if scheduler.finish(request, 17, "tool_call"):
        engine.until(lambda so_far: so_far["released"])
    assert scheduler.find(7) is None
    assert scheduler.counts().total.requests == 2
    assert scheduler.status().tokens.total.loaded_host == 16


def test_decoding_in_columns(engine):
    scheduler = engine.scheduler
    requests = []
    for i in range(3):
        requests.append(scheduler.add(i, np.arange(i * 100, i * 100 + BLOCK, dtype=np.uint32)))
        scheduler.match(requests[-1])
        scheduler.allocated(requests[-1], [2 * i, 2 * i + 1])
    handles = np.array(requests, dtype=np.uint64)
    engine.step(scheduler.build_columns(1, handles, np.zeros(3, np.uint64)))
    for step in range(2, 6):
        computed = np.full(3, BLOCK + step - 2, np.uint64)
        metadata = scheduler.build_columns(
            step, handles, computed, new_tokens=np.arange(3, dtype=np.uint32), token_offsets=np.arange(4, dtype=np.uint32)
        )
        assert scheduler.refused == []
        engine.step(metadata)
    engine.number = 5
    for request in requests:
        scheduler.finish(request, 2 * BLOCK)
    engine.until(lambda _: not scheduler.has_work())
    assert scheduler.saves().saved == 6


def test_columns_are_checked(engine):
    request = engine.scheduler.add("a", [1, 2, 3])
    handles = np.array([request], np.uint64)
    zero = np.zeros(1, np.uint64)
    with pytest.raises(cairn.InvalidArgumentError, match="offsets of new_tokens"):
        engine.scheduler.build_columns(1, handles, zero, new_tokens=np.ones(3, np.uint32), token_offsets=np.array([0, 2], np.uint32))
    with pytest.raises(cairn.InvalidArgumentError, match="computed_tokens has 2"):
        engine.scheduler.build_columns(1, handles, np.zeros(2, np.uint64))
    with pytest.raises(cairn.InvalidArgumentError, match="scheduled_tokens has 2"):
        engine.scheduler.build_columns(1, handles, zero, scheduled_tokens=np.zeros(2, np.uint64))


def test_invalid_input_is_refused(engine):
    scheduler = engine.scheduler
    request = scheduler.add("a", [1, 2, 3])
    with pytest.raises(cairn.AlreadyExistsError):
        scheduler.add("a", [1])
    with pytest.raises(cairn.NotFoundError):
        scheduler.match(request + 1000)
    engine.step(scheduler.build(1, [cairn.Scheduled(request, computed_tokens=99)]))
    assert scheduler.refused[0][0] == request
    with pytest.raises(cairn.Error):
        scheduler.build(1)
    engine.number = 1
    scheduler.finish(request)


def test_reset_forgets_what_was_saved(engine):
    tokens = list(range(2 * BLOCK + 1))
    save(engine, "a", tokens, [0, 1, 2])
    assert engine.scheduler.reset().reset == 2
    assert engine.scheduler.match(engine.scheduler.add("b", tokens)).tokens == 0
    assert engine.scheduler.invalidate(3).reset == 0


def test_what_was_dropped_is_told():
    made = Engine(offload={"host": {"queue": 2}})
    try:
        _, counts = save(made, "a", list(range(4 * BLOCK + 1)), [0, 1, 2, 3, 4])
        assert made.scheduler.saves().shed == 2
        assert (counts.saved, counts.dropped_shed) == (2 * BLOCK, 2 * BLOCK)
    finally:
        made.close()


def test_requests_have_times_hints_and_tenants():
    with cairn.Scheduler(config(requests={"retention": True}), device_blocks=BLOCKS) as scheduler:
        scheduler.add("a", [1, 2], priority=80, priority_duration=5, time_to_live=60, hint="returns", hint_after=30)
        with pytest.raises(cairn.NotFoundError):
            scheduler.add("b", [1], tenant="nobody")
        with pytest.raises(cairn.FailedPreconditionError):
            scheduler.add("c", [1], block_digests=[b"0" * 32])


def test_digests_of_vllm():
    model = config()
    model["model"]["scheme"] = "vllm"
    with cairn.Scheduler(model, device_blocks=BLOCKS) as scheduler:
        tokens = list(range(2 * BLOCK))
        scheduler.add("a", tokens, block_digests=[bytes([i]) * 32 for i in range(2)])
        with pytest.raises(cairn.InvalidArgumentError, match="one length"):
            scheduler.add("b", tokens, block_digests=[b"1" * 32, b"2" * 16])
        with pytest.raises(cairn.FailedPreconditionError):
            scheduler.add("c", tokens)


def test_ranks_and_addresses(tmp_path):
    with cairn.Scheduler(config(), device_blocks=BLOCKS, address=f"unix:{tmp_path}/leader") as scheduler:
        assert scheduler.address == f"unix:{tmp_path}/leader"
        with pytest.raises(cairn.ExpiredError):
            scheduler.wait_for_ranks(0.01)
        kv = np.zeros((LAYERS, 2, BLOCKS, BLOCK, HEADS, SIZE), dtype=np.float32)
        group = cairn.KvGroup(kv, "layer kv block token head element", layers=["a", "b"])
        with cairn.Worker(group, leader=scheduler.address) as worker:
            scheduler.wait_for_ranks(10)
            assert scheduler.rank_status()[0].is_there
            assert worker.state().is_connected


def test_two_threads_in_one_scheduler_is_an_error_not_a_crash(engine):
    errors = []

    def build():
        for _ in range(200):
            try:
                engine.scheduler.has_work()
                engine.scheduler.take_outcomes()
            except cairn.FailedPreconditionError as error:
                errors.append(str(error))

    thread = threading.Thread(target=build)
    thread.start()
    for i in range(1, 200):
        try:
            engine.scheduler.build(i)
        except cairn.FailedPreconditionError as error:
            errors.append(str(error))
    thread.join()
    assert all("one thread at a time" in error for error in errors)


def test_the_manager_ends_with_the_scheduler():
    scheduler = cairn.Scheduler(config(), device_blocks=BLOCKS)
    manager = scheduler.manager
    assert manager.device is None
    assert manager.host.capacity == 64
    scheduler.close()
    assert manager.closed
    with pytest.raises(cairn.FailedPreconditionError, match="closed"):
        manager.status()
    with pytest.raises(cairn.FailedPreconditionError, match="closed"):
        scheduler.build(1)


def test_a_prompt_of_131072_tokens_in_one_step_is_saved_whole():
    """With default settings of the queue."""
    tokens, blocks = 131_072, 8_192
    model = {"name": "long", "layers": 1, "heads": 1, "head_size": 8, "element_type": "f16"}
    with cairn.Scheduler(model=model, host={"blocks": blocks, "pinning": "off"}, device_blocks=blocks) as scheduler:
        kv = np.zeros((2, blocks, 16, 1, 8), dtype=np.float16)
        with cairn.Worker(cairn.KvGroup({"a": kv}, "kv block token head element"), scheduler=scheduler) as worker:
            scheduler.wait_for_ranks(10)
            request = scheduler.add("long", np.arange(tokens, dtype=np.uint32))
            scheduler.match(request)
            scheduler.allocated(request, np.arange(blocks, dtype=np.uint32))
            worker.bind(scheduler.build(1, [cairn.Scheduled(request, 0, scheduled_tokens=tokens)]))
            worker.start_load()
            kv[:] = 1
            worker.save_step()
            scheduler.finish(request, tokens)
            number, ended = 1, {}
            while not ended:
                number += 1
                worker.bind(scheduler.build(number))
                worker.start_load()
                worker.save_step()
                worker.take_outcomes()
                ended = scheduler.take_outcomes().ended
            assert ended[request].saved == tokens
            assert scheduler.saves().saved == blocks
            assert scheduler.manager.host.counts.registered == blocks


def test_scheduled_keeps_what_it_is_given():
    """However it is given: few numbers in tuples and lists are read in another way than many, or arrays, or keywords."""
    for make in (tuple, list, lambda numbers: np.array(numbers, np.uint32), lambda numbers: np.array(numbers, np.int64)):
        for count in (0, 1, 8, 9, 100):
            tokens, blocks, drafts = (list(range(first, first + count)) for first in (7, 2**31, 2**32 - 100))
            one = cairn.Scheduled(3, 2**40, make(tokens), make(blocks))
            assert (one.request, one.computed_tokens, one.new_tokens, one.new_blocks) == (3, 2**40, tokens, blocks)
            assert (one.draft_tokens, one.accepted_draft_tokens, one.scheduled_tokens) == ([], 0, 0)
            drafting = {"draft_tokens": make(drafts), "accepted_draft_tokens": 1, "scheduled_tokens": 2}
            other = cairn.Scheduled(computed_tokens=5, request=4, new_blocks=make(blocks), **drafting)
            assert (other.request, other.computed_tokens, other.new_tokens, other.new_blocks) == (4, 5, [], blocks)
            assert (other.draft_tokens, other.accepted_draft_tokens, other.scheduled_tokens) == (drafts, 1, 2)
            other.new_tokens, other.new_blocks, other.draft_tokens = make(tokens), make(tokens), make(tokens)
            assert other.new_tokens == other.new_blocks == other.draft_tokens == tokens
    assert cairn.Scheduled(np.uint64(2**63), np.int32(7)).request == 2**63
    assert cairn.Scheduled(2**64 - 1, 0).request == 2**64 - 1
    assert repr(cairn.Scheduled(1, 2, (3,))) == "Scheduled(request=1, computed_tokens=2, 1 new tokens, 0 new blocks)"


def test_what_scheduled_refuses():
    for wrong in (
        lambda: cairn.Scheduled(),
        lambda: cairn.Scheduled(1),
        lambda: cairn.Scheduled(-1, 0),
        lambda: cairn.Scheduled(2**64, 0),
        lambda: cairn.Scheduled("1", 0),
        lambda: cairn.Scheduled(1, None),
        lambda: cairn.Scheduled(1, 0.5),
        lambda: cairn.Scheduled(1, 0, (), (), ()),
        lambda: cairn.Scheduled(1, 0, other=2),
        lambda: cairn.Scheduled(1, 0, request=2),
        lambda: cairn.Scheduled(1, 0, 7),
        lambda: cairn.Scheduled(1, 0, ("a",)),
        lambda: cairn.Scheduled(1, 0, (-1,)),
        lambda: cairn.Scheduled(1, 0, (), [2**32]),
        lambda: cairn.Scheduled(1, 0, new_block_digests=[b"1", b"22"]),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            wrong()


def test_scheduled_has_subclasses_and_goes_with_its_numbers():
    class Named(cairn.Scheduled):
        name = "a"

    one = Named(1, 2, [3])
    assert (one.name, one.request, one.new_tokens) == ("a", 1, [3])
    # Objects that were dropped are used again: none has anything of an earlier one.
    for _ in range(3):
        many = [cairn.Scheduled(i, i, (i,), draft_tokens=list(range(i % 7))) for i in range(3000)]
        few = [cairn.Scheduled(i, 0) for i in range(3000)]
        assert all(each.new_tokens == [i] and len(each.draft_tokens) == i % 7 for i, each in enumerate(many))
        assert all(each.new_tokens == each.draft_tokens == [] for each in few)
        del many, few
