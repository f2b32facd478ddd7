"""cairn.vllm.chunks: jobs of a secondary tier of vLLM's, without vLLM."""

import hashlib
import threading

import numpy as np
import pytest

import cairn
from cairn._page_store import PageShape
from cairn.vllm.chunks import ChunkStore

ROW = 4096
ROWS = 64


def name(number, group=0):
    """As vLLM names a chunk: the hash of its last block and the number of its group."""
    return hashlib.sha256(str(number).encode()).digest() + group.to_bytes(4, "big")


class Host:
    """vLLM's host tier."""

    def __init__(self):
        self.rows = np.zeros((ROWS, ROW), dtype=np.uint8)

    def fill(self, row, seed):
        self.rows[row] = np.random.default_rng(seed).integers(0, 256, ROW, dtype=np.uint8)

    def holds(self, row, seed):
        return (self.rows[row] == np.random.default_rng(seed).integers(0, 256, ROW, dtype=np.uint8)).all()


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def make(tmp_path, host):
    made = []

    def make(shard="a", **settings):
        shape = PageShape(tokens=16, page_bytes=ROW, scheme="vllm", shard=shard)
        given = {"disk.path": str(tmp_path / "blocks"), "disk.blocks": 256, "disk.direct": False, **settings}
        manager = cairn.Manager(shape.settings("tiny", given))
        made.append(ChunkStore(manager, host.rows.ctypes.data, ROW))
        return made[-1]

    yield make
    for store in made:
        store.close()


def rows(*numbers):
    return np.array(numbers, dtype=np.int32)


def outcome(store):
    store.drain()
    (job,) = store.finished()
    return job


def stored(store, host, count, group=0):
    for i in range(count):
        host.fill(i, i)
    store.store(1, [name(i, group) for i in range(count)], rows(*range(count)))
    job = outcome(store)
    assert (job.job, job.is_load, job.done) == (1, False, [True] * count)


def test_chunks_come_back_also_after_a_restart(make, host):
    store = make()
    stored(store, host, 8)
    for again in (False, True):
        if again:
            store.close()
            store = make()
        host.rows[:] = 0
        store.load(2, [name(i) for i in (5, 0, 7)], rows(20, 21, 63))
        job = outcome(store)
        assert (job.job, job.is_load, job.done) == (2, True, [True] * 3)
        assert host.holds(20, 5) and host.holds(21, 0) and host.holds(63, 7)
        assert not host.rows[:20].any() and not host.rows[22:63].any()


def test_groups_and_parts_of_digests_are_different_chunks(make, host):
    store = make()
    stored(store, host, 1, group=1)
    assert store.has(name(0, 1))
    assert not store.has(name(0, 0)) and not store.has(name(0, 256)) and not store.has(name(0, 1)[:20])


def test_a_chunk_that_is_missing_fails_alone(make, host):
    store = make()
    stored(store, host, 2)
    store.load(3, [name(0), name(9), name(1)], rows(10, 11, 12))
    assert outcome(store).done == [True, False, True]
    assert host.holds(10, 0) and host.holds(12, 1)


def test_damaged_chunks_are_misses(make, host, tmp_path):
    store = make()
    stored(store, host, 4)
    store.close()
    file = tmp_path / "blocks"
    content = bytearray(file.read_bytes())
    wanted = np.random.default_rng(2).integers(0, 256, ROW, dtype=np.uint8).tobytes()
    content[content.index(wanted) + 77] ^= 1
    file.write_bytes(content)
    store = make()
    host.rows[:] = 0
    store.load(2, [name(i) for i in range(4)], rows(0, 1, 2, 3))
    assert outcome(store).done == [True, True, False, True]
    assert not store.has(name(2)), "a request would ask for it forever"


def test_a_job_that_raises_ends_as_failed(make, host, caplog):
    """vLLM waits for every job that it began."""
    store = make()
    stored(store, host, 1)
    store.manager.close()
    store.load(2, [name(0)], rows(1))
    store.store(3, [name(1)], rows(1))
    store.drain()
    assert sorted((job.job, job.done) for job in store.finished()) == [(2, [False]), (3, [False])]
    assert "load of 1 chunks failed" in caplog.text and "store of 1 chunks failed" in caplog.text


def test_many_jobs_at_once(make, host):
    store = make()
    stored(store, host, 32)
    for job in range(100):
        store.load(100 + job, [name(job % 32)], rows(32 + job % 32))
    ended = []
    while len(ended) < 100:
        ended += store.finished()
        threading.Event().wait(0.001)
    assert sorted(job.job for job in ended) == list(range(100, 200)) and all(job.done == [True] for job in ended)
    assert all(host.holds(32 + i, i) for i in range(32))


def test_other_bytes_have_another_namespace(make, host):
    store = make(shard="a")
    stored(store, host, 1)
    store.close()
    with pytest.raises(cairn.Error, match="something else"):
        make(shard="b")
