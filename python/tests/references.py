"""Looks for references and memory that calls of the package leave behind, with a debug build of Python.

    scripts/check_python.sh --references

runs each operation of this file in batches of ten, and compares sys.gettotalrefcount() and sys.getallocatedblocks() before and after
each: an operation has a leak if every one of sixty batches leaves at least one reference or one memory block a repetition. Growth
that ends is none: objects whose construction fails, and unpickled ones, leave a block in most of their first two hundred repetitions and
none afterwards. The operations make every class of the package: a class that none of them returns is an error too.

References are counted only by code that was compiled for a debug build. numpy was not: operations that use it are judged by memory
blocks alone, and so are those of asyncio.
"""

import argparse
import array
import asyncio
import gc
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import test_engine_requests
import test_scheduler
from managers import BLOCK, compute, prompt, small

import cairn
from cairn import _cairn

BATCHES, REPETITIONS = 60, 10
OPERATIONS = []


def operation(call):
    """Measured by references and memory blocks."""
    OPERATIONS.append((call, True))
    return call


def uses_numpy(call):
    """Measured by memory blocks."""
    OPERATIONS.append((call, False))
    return call


def fails(error, call, *arguments, **keywords):
    """The error that the call raises, without its traceback, which would hold this frame."""
    try:
        call(*arguments, **keywords)
    except error as raised:
        return raised.with_traceback(None)
    raise AssertionError(f"{call} did not raise {error}")


def keys_of(blocks, salt=""):
    return cairn.hash_tokens(range(blocks * BLOCK), BLOCK, cairn.KeyHasher("dynamo", salt=salt))


# --- tokens and keys ---


@operation
def keys():
    hasher = cairn.KeyHasher("native", bytes(32), model="m", block_size=BLOCK).with_(salt="s", lora="l")
    tokens = array.array("I", range(40))
    made = cairn.hash_tokens(tokens, BLOCK, hasher, mm_runs=[cairn.MmRun(2, 3, mm_hash=7)])
    key = made[3]
    assert cairn.Key.parse(str(key)) == cairn.Key.frombytes(key.tobytes()) == pickle.loads(pickle.dumps(key))
    assert made[:5] + made[5:] == made == cairn.Keys.frombytes(made.tobytes()) and key in made and repr(made)
    assert hash(key) and sorted(made) and int(key) and list(made) and key != 5 and made != [5]
    return [hasher, made, key, iter(made), cairn.MmRun(2, 3, mm_hash=7)]


@operation
def sequences():
    sequence = cairn.TokenSequence(range(10), BLOCK, cairn.KeyHasher("dynamo"))
    assert sequence.append(10) is None and sequence.extend([11, 12, 13])
    sequence.unwind(1)
    sequence.truncate(9)
    assert sequence.pop() == 8 and sequence.keys
    return [sequence, repr(sequence)]


@operation
def digests():
    of_vllm, of_sglang = cairn.vllm_digests(range(8), BLOCK), cairn.sglang_digests(range(8), BLOCK)
    adopted = cairn.TokenSequence(range(8), BLOCK, cairn.KeyHasher("vllm"), adopting=True)
    adopted.adopt(cairn.vllm_keys(cairn.KeyHasher("vllm"), of_vllm))
    cairn.sglang_keys(cairn.KeyHasher("sglang"), of_sglang)
    cairn.router_keys([1, 2, 3], 7)
    return [of_vllm, of_sglang, cairn.sglang_storage_seed("lora"), cairn.sglang_event_hash(of_sglang[0])]


@operation
def errors_of_keys():
    class Broken(list):
        def __getitem__(self, index):
            raise ZeroDivisionError

    return [
        fails(cairn.InvalidArgumentError, cairn.hash_tokens, [1], 0),
        fails(cairn.FailedPreconditionError, cairn.hash_tokens, [1], 1, cairn.KeyHasher("vllm")),
        fails(cairn.CorruptError, cairn.Key.frombytes, b"\xff" * 16),
        fails(cairn.Error, cairn.Key.parse, "no key"),
        fails(TypeError, cairn.hash_tokens, [1.5] * 8, 8),
        fails(TypeError, cairn.Keys, [1]),
        fails(ZeroDivisionError, cairn.hash_tokens, Broken([1, 2]), 2),
        fails(IndexError, keys_of(2).__getitem__, 9),
        fails(cairn.InvalidArgumentError, cairn.KeyHasher, "xxh").code,
    ]


@uses_numpy
def arrays_of_keys():
    tokens = np.arange(40, dtype=np.uint32)
    made = cairn.hash_tokens(tokens[::2], BLOCK)
    sequence = cairn.TokenSequence(tokens, BLOCK)
    assert cairn.Keys.from_numpy(made.to_numpy()) == made
    return [made.to_numpy(), sequence.tokens, sequence.tail, sequence.block_hashes, sequence.split(3)]


# --- pools and allocators ---


@operation
def pools():
    pool = cairn.BlockPool(16, BLOCK, "lru", hints=True, tenants=[cairn.TenantQuota("a", reserved=4)])
    some = keys_of(6)
    mutable = pool.allocate(8)
    quarantined = mutable.take_front(2).quarantine()
    complete = mutable.complete(some)
    held = complete.register(cairn.Retention(priority=60))
    shared, pinned, weak = held.share(2), held.pin(), held.downgrade()
    borrowed = pool.borrow(some)
    facts = held.facts()
    below = cairn.BlockPool(8, BLOCK, tier="G2").allocate(6).complete_as(facts).register()
    upgraded = weak.upgrade()
    assert len(upgraded) == 6 and pool.hint(some, "returns", after=5.0) == 6 and repr(held) and repr(pool)
    with pool.match_prefix(some) as found, pool.hold(some) as again:
        assert len(found) == len(again) == 6
    listed, made = pool.list_blocks(), [pool.counts, pool.stats, pool.usage(0), cairn.TenantQuota("a")]
    quarantined.release_proven_finished()
    return [pool, mutable, quarantined, complete, held, shared, pinned, weak, borrowed, facts, below, listed, *facts, *listed, *made,
            cairn.Retention(), pool.peek(some)[0]]


@operation
def evictions():
    pool = cairn.BlockPool(8, BLOCK, "lru", low_water=4, seed=1)
    some = keys_of(6)
    pool.allocate(6).complete(some).register().release()
    pool.claim_victims(2).release_as_victims()
    blocks, evicted = pool.allocate_with_victims(4)
    reset = pool.reset([some[0]])
    pool.discard([some[1]])
    return [blocks, evicted, reset, pool.fence()]


@operation
def errors_of_pools():
    pool = cairn.BlockPool(4, BLOCK)
    mutable = pool.allocate(2)
    mutable.complete(keys_of(2)).register().release()
    return [
        fails(cairn.ExhaustedError, pool.allocate, 9),
        fails(cairn.FailedPreconditionError, lambda: mutable.block_ids),
        fails(cairn.InvalidArgumentError, cairn.BlockPool, 4, 4, "mru"),
        fails(cairn.Error, pool.usage, 9),
        fails(TypeError, cairn.BlockPool, -1, 4),
    ]


@uses_numpy
def block_ids():
    pool = cairn.BlockPool(8, BLOCK)
    pool.restore([5, 3], keys_of(2))
    with pool.match_prefix(keys_of(2)) as held:
        return [held.block_ids]


@operation
def allocators():
    allocator = cairn.BlockAllocator(4, 16)
    one, two = allocator.allocate(2)
    allocator.retain([one])
    allocator.free([one, two])
    shared = cairn.SharedBlockAllocator(8, 16)
    tenant = shared.join("one", reserved=2)
    blocks = tenant.allocate(2)
    manager = cairn.BlockManager.shared(shared, "engine", limit=3)
    manager.allocate(1)
    manager.fork(1, 2)
    _, hold = manager.make_writable(1, 0)
    table = manager.get_block_table(2)
    assert table[0] in table.blocks and repr(table) and {one: 1}[one]
    errors = [
        fails(cairn.ExhaustedError, allocator.allocate, 4),
        fails(cairn.AlreadyExistsError, shared.join, "one"),
        fails(cairn.NotFoundError, manager.fork, 9, 3),
        fails(cairn.OutOfRangeError, manager.make_writable, 2, 5),
    ]
    with hold:
        pass
    return [allocator, one, shared, tenant, blocks, manager, hold, table, errors, *errors]


# --- managers ---


def filled_manager(**keys):
    manager = cairn.Manager(small(**keys))
    some = manager.keys(range(3 * BLOCK))
    manager.device.allocate(3).complete(some).register().release()
    manager.drain()
    return manager, some


@operation
def managers():
    manager, some = filled_manager()
    with manager:
        manager.device.reset_inactive()
        load = manager.load(some)
        outcome = load.wait(10)
        assert outcome.prefix == 3 and load.done() and load.result() is outcome and repr(load)
        outcome.blocks.release()
        offload = manager.offload(some)
        offloaded = offload.wait(10)
        manager.device.reset_inactive()
        with manager.host.match_prefix(some) as held:
            onboard = manager.onboard(held)
            brought = onboard.wait(10)
        brought.release()
        load.cancel()
        status, samples = manager.status(), manager.metric_samples()
        assert status.to_dict() and status.tiers[0].registered == 3 and manager.metrics() and manager.config
        made = [manager.locate(some), manager.reset_keys("host", some), manager.reset(), status, samples, *samples]
        return [manager, load, outcome, offload, offloaded, onboard, brought, *made]


@operation
def events():
    manager, some = filled_manager()
    with manager:
        view, cursor = cairn.ResidencyView(), manager.events()
        changes = list(cursor) + list(manager.events(since=1))
        view.apply(changes[0])
        assert view.match_prefix(some).blocks == 3 and view.tiers_holding(some[0]) and view.keys("host") and changes[-1].to_json()
        error = fails(cairn.OutOfRangeError, manager.events, since=1000)
        return [manager, view, cursor, *changes, error]


@operation
def errors_of_managers():
    manager, some = filled_manager()
    with manager:
        manager.pause("device", "host")
        raised = [
            fails(cairn.FailedPreconditionError, manager.offload, some),
            fails(cairn.NotFoundError, manager.memory, "disk"),
            fails(cairn.InvalidArgumentError, manager.reset, "tape"),
            fails(cairn.InvalidArgumentError, cairn.Manager, small(host={"sise": "1GiB"}), block_size="many"),
            fails(cairn.InvalidArgumentError, cairn.Manager, "text"),
            fails(cairn.Error, cairn.Manager.from_file, "/no-such/cairn.toml"),
            fails(AttributeError, lambda: manager.status().nothing),
        ]
    return [*raised, fails(cairn.FailedPreconditionError, manager.status), repr(manager)]


@operation
def disks():
    with tempfile.TemporaryDirectory() as folder:
        disk = {"blocks": 64, "path": f"{folder}/blocks", "direct": False}
        manager, some = filled_manager(disk=disk)
        with manager:
            manager.offload(some, into="disk").wait(10)
            manager.device.reset_inactive()
            manager.host.reset_inactive()
            prefetch = manager.prefetch(some)
            assert prefetch.wait(10) == 3
            return [prefetch, fails(cairn.Error, cairn.Manager, small(disk=disk))]


@uses_numpy
def memory():
    manager, some = filled_manager()
    with manager:
        memory = manager.memory("device")
        arrays = [memory.array(), memory.layer(1), memory.block(2)]
        seen = [each.numpy() for each in arrays] + [np.from_dlpack(arrays[1]), np.asarray(arrays[2])]
        compute(manager, manager.keys(prompt(2, seed=5)))
        return [memory, *arrays, *seen, manager.locate(some).levels]


@uses_numpy
def pages():
    config = small(device={"blocks": 0}) | {"device": {}}
    with cairn.Manager(config) as manager:
        some = manager.keys(range(2 * BLOCK))
        size = manager.memory("host").block_bytes
        buffer = np.zeros(2 * size, dtype=np.uint8)
        parts = np.array([buffer.ctypes.data, buffer.ctypes.data + size], dtype=np.uint64)
        sizes = np.array([size, size], dtype=np.uint64)
        return [manager.store_pages(some, parts, sizes), manager.fetch_pages(some, parts, sizes), manager.contains(some)]


@uses_numpy
def awaited():
    async def main():
        manager, some = filled_manager()
        with manager:
            manager.device.reset_inactive()
            outcome = await manager.load(some)
            outcome.blocks.release()
            cursor = manager.events()
            assert [change async for change in limited(cursor, 1)]
            task = asyncio.ensure_future(anext(manager.events(since=cursor.next_sequence)))
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return [outcome]

    return asyncio.run(main())


async def limited(changes, count):
    async for change in changes:
        yield change
        count -= 1
        if count == 0:
            return


# --- the connector ---


@uses_numpy
def connectors():
    engine = test_scheduler.Engine()
    tokens = list(range(4 * BLOCK + 1))
    match, counts = test_scheduler.save(engine, "a", tokens, [3, 1, 4, 15, 9])
    request = engine.scheduler.add("b", tokens)
    engine.scheduler.match(request)
    engine.scheduler.allocated(request, [20, 21, 22, 23, 24], loaded_tokens=16)
    outcomes, worker_outcomes = engine.scheduler.take_outcomes(), engine.step()
    loaded = engine.until(lambda so_far: so_far["loaded"])["loaded"]
    engine.scheduler.finish(request, 16)
    made = [engine.worker.state(), engine.scheduler.saves(), engine.scheduler.counts(), engine.scheduler.status()]
    group = cairn.KvGroup(engine.kv, "layer kv block token head element", layers=["a", "b"])
    error = fails(cairn.NotFoundError, engine.scheduler.match, 999_999)
    engine.close()
    return [engine.scheduler, engine.worker, match, counts, outcomes, worker_outcomes, *loaded, *made, group, error, cairn.Scheduled(1, 0),
            fails(cairn.FailedPreconditionError, engine.scheduler.build, 9)]


@operation
def schedulers():
    with cairn.Scheduler(test_scheduler.config(), device_blocks=64) as scheduler:
        request = scheduler.add("a", range(9), salt="s")
        match = scheduler.match(request)
        scheduler.allocated(request, [1, 2, 3])
        metadata = scheduler.build(1, [cairn.Scheduled(request, 0, [7, 8], new_blocks=[4], scheduled_tokens=9)])
        errors = [
            fails(cairn.NotFoundError, scheduler.allocated, 999_999, [1, 2, 3]),
            fails(cairn.InvalidArgumentError, scheduler.add, "b", []),
            fails(TypeError, scheduler.build, 2, [5]),
        ]
        scheduler.finish(request, 9)
        return [scheduler, match, metadata, scheduler.take_outcomes(), *errors, scheduler.refused, repr(scheduler)]


@uses_numpy
def engine_requests():
    engine = test_engine_requests.Engine()
    test_engine_requests.run(engine, "a", list(range(4 * BLOCK + 1)), [3, 1, 4, 15, 9])
    tokens = [1, 2, 3]
    engine.requests.add("b", tokens, [])
    error = fails(cairn.AlreadyExistsError, engine.requests.add, "b", tokens, [])
    tokens.append(4)
    engine.step(["b"], [0], [([1],)], {"b": 4}, {"b"})
    engine.requests.finish("b", 4)
    engine.requests.add("never finished", [1, 2, 3], [])
    engine.close()
    return [engine.requests, error]


# --- experiments ---


@operation
def experiments():
    rows = cairn.traces.generate("chat", requests=20, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        cairn.traces.write(path, rows)
        reader = cairn.traces.read(path)
        read = list(reader)
    found = cairn.hitrate(rows, policies=["lru", "opt"], capacities=["5%", 64])
    replayed = cairn.replay(rows, blocks=256)
    assert found.best() and found.to_dict() and replayed.to_dict() and repr(found) and repr(replayed)
    return [rows, read, reader, found, found[0], replayed, fails(cairn.InvalidArgumentError, cairn.hitrate, rows, policies="mru"),
            cairn.Record({"a": [{"b": 1}]}).a[0]]


@operation
def probes():
    return [_cairn._probe_gpus()]


# The family of errors, and those of what this file does not do: a copy that times out, a cancelled one, an I/O error, a tier that is out.
NOT_MADE = {"CancelledError", "Error", "ExpiredError", "IoError", "UnavailableError"}


def measure(call):
    """Runs the call REPETITIONS times. Returns how many references and memory blocks are left."""
    gc.collect()
    references, blocks = sys.gettotalrefcount(), sys.getallocatedblocks()
    for _ in range(REPETITIONS):
        call()
    gc.collect()
    return sys.gettotalrefcount() - references, sys.getallocatedblocks() - blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operations; all of them by default")
    arguments = parser.parse_args()
    if not hasattr(sys, "gettotalrefcount"):
        sys.exit(f"{sys.executable} does not count references; use a debug build (python3-dbg)")
    warnings.simplefilter("ignore", ResourceWarning)
    failed, seen = [], set()
    for call, counts_references in OPERATIONS:
        if arguments.names and call.__name__ not in arguments.names:
            continue
        for _ in range(3):  # caches are filled
            made = call()
        seen |= {type(each).__name__ for each in made}
        del made
        for batch in range(1, BATCHES + 1):
            references, blocks = measure(call)
            leaks = (counts_references and references >= REPETITIONS) or blocks >= REPETITIONS
            if not leaks:
                break
        failed += [call.__name__] * leaks
        text = f"{references if counts_references else '':>5} references {blocks:4} blocks left by {REPETITIONS} in batch {batch}"
        print(f"{'LEAKS' if leaks else 'ok':6}{call.__name__:20}{text}", flush=True)
    classes = {name for name in cairn.__all__ if isinstance(getattr(cairn, name), type)}
    if not arguments.names and (missing := classes - seen - NOT_MADE):
        sys.exit(f"no operation returns an object of {', '.join(sorted(missing))}")
    sys.exit(f"leaks: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
