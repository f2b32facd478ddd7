"""cairn.sglang without SGLang: SGLang's host pools and configuration are replaced by small stand-ins."""

import ctypes
import dataclasses
import hashlib
import re
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

import cairn
import cairn._shared_pages
import cairn.sglang
from cairn.sglang import SUPPORTED_VERSIONS, CairnStorage

PAGE = 4  # tokens
LAYERS = 3
PART = PAGE * 2 * 8 * 2  # 2 heads of 8 elements of 2 bytes


class HostPool:
    """A KV pool of SGLang's: [K/V, layer, token, ...] (layer_first) or [K/V, token, layer, ...] (page_first)."""

    def __init__(self, pages=64, layout="page_first", page_size=PAGE, dtype="torch.bfloat16"):
        self.page_size, self.layout, self.dtype, self.size = page_size, layout, dtype, pages * page_size
        self.row = PART // PAGE
        self.bytes = np.zeros(2 * LAYERS * self.size * self.row, dtype=np.uint8)

    def get_page_buffer_meta(self, indices):
        assert len(indices) % self.page_size == 0
        base, half = self.bytes.ctypes.data, LAYERS * self.size * self.row
        pointers = []
        for index in indices.tolist()[:: self.page_size]:
            for layer in range(LAYERS if self.layout == "layer_first" else 1):
                step = self.row if self.layout == "layer_first" else LAYERS * self.row
                key = base + layer * self.size * self.row + index * step
                pointers += [key, key + half]
        page = 2 * LAYERS * self.page_size * self.row
        return pointers, [page * (len(indices) // self.page_size) // len(pointers)] * len(pointers)

    def view(self, page):
        parts, sizes = self.get_page_buffer_meta(indices([page], self.page_size))
        return [np.ctypeslib.as_array(ctypes.cast(p, ctypes.POINTER(ctypes.c_uint8)), (n,)) for p, n in zip(parts, sizes)]

    def fill(self, page, seed):
        generator = np.random.default_rng(seed)
        for part in self.view(page):
            part[:] = generator.integers(0, 256, len(part), dtype=np.uint8)

    def holds(self, page, seed):
        generator = np.random.default_rng(seed)
        return all((part == generator.integers(0, 256, len(part), dtype=np.uint8)).all() for part in self.view(page))

    def wipe(self):
        self.bytes[:] = 0


def indices(pages, page_size=PAGE):
    return np.concatenate([np.arange(page * page_size, (page + 1) * page_size) for page in pages])


def hashes(count, seed=0):
    return [hashlib.sha256(f"{seed}/{i}".encode()).hexdigest() for i in range(count)]


@dataclasses.dataclass
class StorageConfig:
    extra_config: dict
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    dcp_rank: int = 0
    dcp_size: int = 1
    dp_rank: int = 0
    is_mla_model: bool = False
    enable_storage_metrics: bool = True
    model_name: str = "tiny"


@dataclasses.dataclass
class PoolTransfer:
    name: str
    host_indices: object = None
    keys: object = None
    hit_policy: str = "all_pages"


@dataclasses.dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict
    restorable_prefix_pages: object = None


@dataclasses.dataclass
class StorageMetrics:
    prefetch_pgs: list = dataclasses.field(default_factory=list)
    backup_pgs: list = dataclasses.field(default_factory=list)
    prefetch_bandwidth: list = dataclasses.field(default_factory=list)
    backup_bandwidth: list = dataclasses.field(default_factory=list)


@pytest.fixture(autouse=True)
def sglang(monkeypatch):
    """What the plug-in takes from SGLang."""
    monkeypatch.setattr(cairn.sglang, "_installed_version", lambda: SUPPORTED_VERSIONS[0])
    for name, members in {
        "sglang.srt.mem_cache.hicache_storage": {"PoolTransferResult": PoolTransferResult},
        "sglang.srt.observability.metrics_collector": {"StorageMetrics": StorageMetrics},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def make(tmp_path):
    """Makes storages with a file in tmp_path; closes those that are left."""
    made = []

    def make(pool=None, config=None, **settings):
        extra = {"backend_name": "cairn", "module_path": "cairn.sglang", "class_name": "CairnStorage", "interface_v1": 1}
        extra.update({"disk.path": str(tmp_path / "blocks"), "disk.blocks": 256, "disk.direct": False})
        extra.update(settings)
        extra = {name: value for name, value in extra.items() if value is not None}
        storage = CairnStorage(dataclasses.replace(config or StorageConfig({}), extra_config=extra), {})
        made.append(storage)
        storage.register_mem_pool_host(pool or HostPool())
        storage.register_mem_host_pool_v2(pool, "kv")
        storage.on_host_pools_registered() if hasattr(storage, "on_host_pools_registered") else None
        return storage

    yield make
    for storage in made:
        storage.close()


def save(storage, pool, keys, seed=0):
    for page in range(len(keys)):
        pool.fill(page, (seed, page))
    return storage.batch_set_v1(keys, indices(range(len(keys))))


def load(storage, pool, keys, seed=0):
    """Fetches into other pages; what is True has the right bytes."""
    pool.wipe()
    first = pool.size // pool.page_size - len(keys)
    got = storage.batch_get_v1(keys, indices(range(first, first + len(keys)), pool.page_size))
    for page, there in enumerate(got):
        assert not there or pool.holds(first + page, (seed, page)), f"page {page} has other bytes"
    return got


# --- pages ---


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_pages_come_back(make, layout):
    pool = HostPool(layout=layout)
    storage = make(pool)
    keys = hashes(20)
    assert storage.batch_exists(keys) == 0
    assert save(storage, pool, keys) == [True] * 20
    assert storage.batch_exists(keys) == 20
    assert storage.exists(keys[7])
    assert load(storage, pool, keys) == [True] * 20
    assert load(storage, pool, hashes(3, seed=9)) == [False] * 3


def test_exists_counts_a_prefix(make):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(10)
    save(storage, pool, keys[:3])
    storage.batch_set_v1(keys[5:], indices(range(5)))
    assert storage.batch_exists(keys) == 3
    assert storage.batch_exists(keys[5:]) == 5
    assert storage.batch_exists(keys[3:]) == 0
    assert storage.batch_exists([]) == 0


def test_sets_are_idempotent_and_cheap_for_known_keys(make):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(8)
    assert save(storage, pool, keys) == [True] * 8
    written = storage.managers["kv"].disk.stats.allocated
    pool.wipe()  # a second set is not even read
    assert storage.batch_set_v1(keys, indices(range(8))) == [True] * 8
    assert storage.batch_set_v1(keys[:2] * 2, indices(range(4))) == [True] * 4
    assert storage.managers["kv"].disk.stats.allocated == written
    assert load(storage, pool, keys) == [True] * 8


def test_storage_is_warm_after_a_restart(make):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(16)
    save(storage, pool, keys)
    storage.close()
    storage = make(pool)
    assert storage.batch_exists(keys) == 16
    assert load(storage, pool, keys) == [True] * 16


def test_more_pages_than_fit_into_host_memory(make):
    pool = HostPool(pages=256)
    storage = make(pool, **{"host.blocks": 8})
    keys = hashes(128)
    assert save(storage, pool, keys) == [True] * 128
    assert load(storage, pool, keys) == [True] * 128


def test_memory_alone(make):
    pool = HostPool()
    storage = make(pool, **{"disk.path": None, "disk.blocks": None, "disk.direct": None, "host.blocks": 32})
    assert storage.managers["kv"].disk is None
    keys = hashes(16)
    assert save(storage, pool, keys) == [True] * 16
    assert load(storage, pool, keys) == [True] * 16


def test_a_full_disk_makes_room(make):
    pool = HostPool()
    storage = make(pool, **{"disk.blocks": 16, "host.blocks": 16})
    for seed in range(6):
        assert save(storage, pool, hashes(12, seed), seed) == [True] * 12
        assert load(storage, pool, hashes(12, seed), seed) == [True] * 12
    assert storage.managers["kv"].disk.counts.registered == 16


def test_the_default_host_tier_is_small(make):
    manager = make(HostPool()).managers["kv"]
    assert manager.config["host.size"] == "256MiB"
    assert manager.host.capacity == (256 << 20) // 4096, "a page takes 4 KiB at least"


def test_clear_forgets_everything(make):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(4)
    save(storage, pool, keys)
    storage.clear()
    assert storage.batch_exists(keys) == 0
    assert load(storage, pool, keys) == [False] * 4
    storage.close()
    assert make(pool).batch_exists(keys) == 0


# --- damage ---


def test_flipped_bits_in_the_file_are_misses(make, tmp_path, caplog):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(10)
    save(storage, pool, keys)
    storage.close()
    file = tmp_path / "blocks"
    stored = bytearray(file.read_bytes())
    for at in range(2 << 20, len(stored), 64):
        stored[at] ^= 1
    file.write_bytes(stored)
    storage = make(pool)
    assert storage.batch_exists(keys) == 10
    assert load(storage, pool, keys) == [False] * 10
    assert "wrong bytes" in caplog.text, "an incident right after the start is logged too"
    assert storage.batch_exists(keys) < 10
    assert save(storage, pool, keys) == [True] * 10
    assert load(storage, pool, keys) == [True] * 10


@pytest.mark.parametrize("disk", [True, False])
def test_flipped_bits_in_memory_never_come_back(make, disk, caplog):
    pool = HostPool()
    settings = {} if disk else {"disk.path": None, "disk.blocks": None, "disk.direct": None}
    storage = make(pool, **{"host.blocks": 32}, **settings)
    keys = hashes(6)
    save(storage, pool, keys)
    memory = storage.managers["kv"].memory("host").array().numpy()
    memory[:] ^= 8
    assert load(storage, pool, keys) == [disk] * 6  # the disk still has them
    assert "cairn_pages_wrong_total 6" in storage.managers["kv"].metrics()


def test_zeroed_pages_are_misses(make, tmp_path):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(5)
    save(storage, pool, keys)
    storage.close()
    file = tmp_path / "blocks"
    stored = file.read_bytes()
    file.write_bytes(stored[: 2 << 20] + bytes(len(stored) - (2 << 20)))
    assert load(make(pool), pool, keys) == [False] * 5


# --- calls that are wrong ---


def test_wrong_numbers_of_indices_are_misses_with_a_warning(make, caplog):
    pool = HostPool()
    storage = make(pool)
    keys = hashes(4)
    assert storage.batch_set_v1(keys, indices(range(3))) == [False] * 4
    assert "12 host indices for 4 pages" in caplog.text
    assert storage.batch_get_v1(keys, None) == [False] * 4
    assert storage.batch_set_v1([], indices([0])[:0]) == []


def test_pages_of_another_size_are_misses(make, caplog):
    pool = HostPool()
    storage = make(pool)
    pool.get_page_buffer_meta = lambda given: ([pool.bytes.ctypes.data], [PART])
    assert storage.batch_set_v1(hashes(1), indices([0])) == [False]
    assert "a block has" in caplog.text


def test_hashes_that_are_none_are_misses(make, caplog):
    storage = make(HostPool())
    assert storage.batch_get_v1(["x" * 64], indices([0])) == [False]
    assert "64 hexadecimal digits" in caplog.text


def test_after_close_everything_is_a_miss(make):
    pool = HostPool()
    storage = make(pool)
    storage.close()
    assert storage.batch_set_v1(hashes(2), indices(range(2))) == [False] * 2


# --- threads ---


def test_sets_gets_and_lookups_at_once(make):
    storage = make(HostPool(pages=512), **{"host.blocks": 16, "disk.blocks": 512})
    pool = storage.mem_pool_host
    failed = []

    def work(thread):
        try:
            own = range(thread * 100, thread * 100 + 16)
            for turn in range(20):
                keys = hashes(16, seed=turn % 5)
                for i, page in enumerate(own):
                    pool.fill(page, (turn % 5, i))
                storage.batch_set_v1(keys, indices(own))
                assert storage.batch_exists(keys) == 16
                for page in own:
                    pool.fill(page, (99, page))
                got = storage.batch_get_v1(keys, indices(own))
                for i, page in enumerate(own):
                    assert not got[i] or pool.holds(page, (turn % 5, i))
                assert sum(got) >= 8
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed, failed[0]


# --- ranks and namespaces ---


def test_each_rank_has_its_own_file(make, tmp_path):
    pools = [HostPool(), HostPool()]
    ranks = [make(pools[rank], StorageConfig({}, tp_rank=rank, tp_size=2)) for rank in range(2)]
    keys = hashes(3)
    save(ranks[0], pools[0], keys, seed=1)
    assert ranks[1].batch_exists(keys) == 0
    save(ranks[1], pools[1], keys, seed=2)
    assert load(ranks[0], pools[0], keys, seed=1) == [True] * 3
    assert load(ranks[1], pools[1], keys, seed=2) == [True] * 3
    assert {path.name for path in tmp_path.iterdir()} >= {"blocks.tp0of2", "blocks.tp1of2"}


@pytest.mark.parametrize(
    "pool, config",
    [
        (HostPool(layout="layer_first"), StorageConfig({})),
        (HostPool(dtype="torch.float16"), StorageConfig({})),
        (HostPool(page_size=8), StorageConfig({})),
        (HostPool(), StorageConfig({}, model_name="other")),
    ],
)
def test_a_file_of_other_pages_is_refused(make, pool, config):
    make(HostPool()).close()
    with pytest.raises(cairn.Error, match="blocks"):
        make(pool, config)


def test_weights_that_changed_are_another_cache(make):
    make(HostPool()).close()
    with pytest.raises(cairn.Error, match="generation"):
        make(HostPool(), **{"model.weights_generation": 1})


# --- hybrid models ---


def test_pools_of_hybrid_models(make):
    pool, window = HostPool(), HostPool(pages=16)
    storage = make(pool)
    storage.register_mem_host_pool_v2(window, "swa")
    keys = hashes(6)
    for page in range(2):
        window.fill(page, 700 + page)
    stored = storage.batch_set_v2([PoolTransfer("swa", indices(range(2)), keys[4:])])
    assert stored == {"swa": [True, True]}
    assert storage.batch_exists(keys) == 0, "the same key in another pool"
    save(storage, pool, keys)

    def hit(policy, last=2):
        return storage.batch_exists_v2(keys, [PoolTransfer("swa", None, keys[-last:], policy)])

    assert hit("trailing_pages") == PoolTransferResult(6, {"kv": 6, "swa": 6}, [6])
    assert hit("trailing_pages", last=1) == PoolTransferResult(6, {"kv": 6, "swa": 6}, [5, 6])
    assert hit("trailing_pages", last=3) == PoolTransferResult(0, {"kv": 6}, [])
    assert hit("all_pages") == PoolTransferResult(0, {"kv": 6}, [])
    assert hit("block_groups") == PoolTransferResult(6, {"kv": 6}, [1, 2, 3, 4, 5, 6])
    assert storage.batch_exists_v2(keys) == PoolTransferResult(6, {"kv": 6}, [1, 2, 3, 4, 5, 6])
    window.wipe()
    got = storage.batch_get_v2([PoolTransfer("swa", indices(range(8, 10)), keys[4:])])
    assert got == {"swa": [True, True]}
    for page in range(2):
        assert window.holds(8 + page, 700 + page)
    assert storage.batch_get_v2([PoolTransfer("swa", indices(range(1)), keys[4:])]) == {"swa": [False, False]}


# --- configuration, versions, metrics ---


def test_an_unsupported_version_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(cairn.sglang, "_installed_version", lambda: "0.6.0")
    with pytest.raises(RuntimeError, match="supports SGLang 0.5.23 and not 0.6.0") as error:
        CairnStorage(StorageConfig({"interface_v1": 1}), {})
    assert "\n" not in str(error.value)
    monkeypatch.setattr(cairn.sglang, "_installed_version", lambda: SUPPORTED_VERSIONS[0] + ".post2")
    CairnStorage(StorageConfig({"interface_v1": 1, "host.size": "1MiB"}), {})


def test_the_document_and_the_install_script_name_the_supported_versions():
    root = Path(__file__).parents[2]
    table = re.findall(r"^\| ([0-9][0-9.]*) \|", (root / "docs/sglang.md").read_text(), re.MULTILINE)
    assert tuple(table) == SUPPORTED_VERSIONS
    installed = re.findall(r"sglang==([0-9.]+)", (root / "tests/engines/install/sglang.sh").read_text())
    assert installed and set(installed) <= set(SUPPORTED_VERSIONS)


@pytest.mark.parametrize(
    "extra, problem",
    [
        ({"disk.path": "/x"}, '"interface_v1": 1'),
        ({"interface_v1": 1}, '"disk.path" and "disk.size"'),
        ({"interface_v1": 1, "disk.path": "/x", "block_size": 4}, "block_size"),
        ({"interface_v1": 1, "disk.path": "/x", "device": {"size": 4}}, "device.size"),
    ],
)
def test_mistakes_in_the_configuration(extra, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        CairnStorage(StorageConfig(extra), {})


def test_unknown_keys_name_the_nearest(make):
    with pytest.raises(cairn.InvalidArgumentError, match="did you mean host.size"):
        make(HostPool(), **{"host.sise": "1GiB"})


def mla(rank, **more):
    return StorageConfig({}, is_mla_model=True, tp_size=2, tp_rank=rank, **more)


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_ranks_of_an_mla_model_share_the_pages_of_rank_0(make, tmp_path, monkeypatch, layout):
    monkeypatch.setattr(cairn._shared_pages, "_SHARED_BYTES", 10_000)  # a few pages at a time
    ours, theirs = HostPool(layout=layout), HostPool(layout=layout)
    first, second = make(ours, mla(0)), make(theirs, mla(1))
    keys = hashes(20)
    assert second.batch_exists(keys) == 0 and load(second, theirs, keys) == [False] * 20
    assert save(first, ours, keys) == [True] * 20
    assert second.batch_exists([*keys, *hashes(2, seed=9)]) == 20
    assert load(second, theirs, [*keys[:7], *hashes(2, seed=9)]) == [True] * 7 + [False] * 2
    assert load(second, theirs, keys) == [True] * 20
    assert save(second, theirs, keys, seed=1) == [True] * 20  # rank 0 stores, and nobody else
    assert load(second, theirs, keys) == [True] * 20
    assert [file.name for file in tmp_path.iterdir()] == ["blocks"]
    assert second.managers == {} and second.get_stats().prefetch_pgs == [7, 20, 20]


def test_ranks_of_an_mla_model_verify_too(make):
    ours, theirs = HostPool(), HostPool()
    first, second = make(ours, mla(0)), make(theirs, mla(1))
    keys = hashes(4)
    save(first, ours, keys)
    first.managers["kv"].memory("host").array().numpy()[:] ^= 8
    content = load(second, theirs, keys)
    assert content == [True] * 4, "the disk has them"
    assert "cairn_pages_wrong_total 4" in first.managers["kv"].metrics()


def test_rank_0_may_be_gone_and_come_back(make):
    ours, theirs = HostPool(), HostPool()
    second = make(theirs, mla(1))
    keys = hashes(4)
    for _ in range(2):
        assert second.batch_exists(keys) == 0 and load(second, theirs, keys) == [False] * 4
        first = make(ours, mla(0))
        assert save(first, ours, keys) == [True] * 4
        assert second.batch_exists(keys) == 4 and load(second, theirs, keys) == [True] * 4
        first.clear()
        first.close()


def test_ranks_of_an_mla_model_ask_from_several_threads(make):
    ours, theirs = HostPool(), HostPool()
    first, second = make(ours, mla(0)), make(theirs, mla(1))
    keys = hashes(16)
    save(first, ours, keys)
    found = []

    def look():
        for _ in range(100):
            found.append(second.batch_exists(keys))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert load(second, theirs, keys) == [True] * 16
    for thread in threads:
        thread.join()
    assert set(found) == {16}


def test_pages_of_another_shape_are_not_shared(make):
    first = make(HostPool(), mla(0))
    theirs = HostPool(page_size=2 * PAGE)
    second = make(theirs, mla(1))
    keys = hashes(2)
    save(first, first.mem_pool_host, keys)
    assert second.batch_exists(keys) == 0 and load(second, theirs, keys) == [False] * 2


def test_ranks_of_an_mla_model_need_a_file():
    with pytest.raises(ValueError, match="needs disk.path"):
        CairnStorage(StorageConfig({"interface_v1": 1, "host.size": "1GiB"}, is_mla_model=True, tp_size=2), {})


def test_a_configuration_file(make, tmp_path):
    pytest.importorskip("tomllib", reason="Python 3.11 and later have it")
    file = tmp_path / "cairn.toml"
    file.write_text(f'[host]\nblocks = 16\n[disk]\npath = "{tmp_path / "named"}"\nblocks = 32\ndirect = false\n')
    pool = HostPool()
    config = StorageConfig({}, tp_rank=1, tp_size=2)
    storage = make(pool, config, config_file=str(file), **{"disk.path": None, "disk.blocks": 64, "disk.direct": None})
    manager = storage.managers["kv"]
    assert (manager.host.capacity, manager.disk.capacity) == (16, 64), "the extra config goes before the file"
    assert manager.config["disk.path"] == str(tmp_path / "named.tp1of2")


def test_a_configuration_file_without_tomllib(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "tomllib", None)
    with pytest.raises(ValueError, match="needs Python 3.11 or later; give the keys"):
        make(HostPool(), config_file="cairn.toml")


def test_stats_for_sglang(make):
    pool = HostPool()
    storage = make(pool)
    save(storage, pool, hashes(5))
    load(storage, pool, hashes(5))
    load(storage, pool, hashes(2, seed=3))
    stats = storage.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([5], [5])
    assert stats.backup_bandwidth[0] > 0 and stats.prefetch_bandwidth[0] > 0
    assert storage.get_stats() == StorageMetrics()


def test_incidents_are_logged_once(make, tmp_path, caplog):
    (tmp_path / "blocks").write_bytes(b"")
    (tmp_path / "blocks").chmod(0o600)
    make(HostPool())
    assert caplog.text.count("damaged file") == 1
