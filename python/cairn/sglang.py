"""Cairn as the storage of SGLang's hierarchical cache (HiCache): verified host and disk tiers that are warm after a restart.

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
    '{"backend_name": "cairn", "module_path": "cairn.sglang", "class_name": "CairnStorage", "interface_v1": 1,
      "disk.path": "/nvme/cairn/blocks", "disk.size": "1TB"}'

Other keys of the extra config are those of docs/configuration.md; docs/sglang.md explains the rest. The module can be imported
without SGLang.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import Error, Keys, Manager, sglang_page_keys
from ._page_store import STAGING_PAGES, IncidentLogger, PageShape, storage_settings
from ._shared_pages import PageClient, PageServer, PageSource
from .vllm.settings import default_address

__all__ = ["SUPPORTED_VERSIONS", "CairnStorage"]

# The releases of SGLang that this module was tested with; docs/sglang.md lists them, and a test compares the two.
SUPPORTED_VERSIONS = ("0.5.23",)

_HICACHE = "sglang.srt.mem_cache.hicache_storage"
_KV = "kv"
# Keys of the extra config that are SGLang's, not Cairn's.
_SGLANG_KEYS = {"backend_name", "module_path", "class_name", "interface_v1", "allocator", "file_storage_path"}
# SGLang's flush of the cache gives up after 10 s, so every call ends before that.
_DEADLINE = 8.0

_log = logging.getLogger(__name__)


def _base() -> Any:
    try:
        return importlib.import_module(_HICACHE).HiCacheStorage
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "sglang":
            raise  # SGLang is there, and something that it needs is not
        return object


def _installed_version() -> str:
    return importlib.metadata.version("sglang")


def _check_version() -> None:
    version = _installed_version()
    if not any(version == known or version.startswith(known + ".post") for known in SUPPORTED_VERSIONS):
        raise RuntimeError(
            f"cairn.sglang supports SGLang {', '.join(SUPPORTED_VERSIONS)} and not {version}; "
            "install one of these, or a Cairn that supports yours"
        )


def _arange(count: int) -> Any:
    """Numbers as SGLang's pools take them: a tensor. Without torch, which only SGLang needs, an array."""
    torch: Any = sys.modules.get("torch")
    return np.arange(count) if torch is None else torch.arange(count)


def _shard(config: Any) -> str:
    """Which part of the model the pages of this process are; empty for the whole model."""
    parts = [
        f"{axis}{rank}of{size}"
        for axis, rank, size in (
            ("tp", config.tp_rank, 1 if config.is_mla_model else config.tp_size),  # with MLA all ranks have the same pages
            ("pp", config.pp_rank, config.pp_size),
            ("cp", config.attn_cp_rank, config.attn_cp_size),
            ("dcp", config.dcp_rank, config.dcp_size),
        )
        if size > 1
    ]
    return ".".join(parts)


class _Pages:
    """The pages of a host pool of SGLang."""

    def __init__(self, name: str, pool: Any) -> None:
        self.name = name
        self.pool = pool
        # Slots that one page has in host_indices.
        self.slots = int(getattr(pool, "logical_page_size", 0) or pool.page_size or 1)
        meta = pool.get_page_buffer_meta(_arange(self.slots))
        if not meta or not len(meta[0]):
            raise RuntimeError(
                f"SGLang's pool '{name}' has no memory of its own, only indices; cairn.sglang does not support this model"
            )
        self.sizes = [int(size) for size in meta[1]]
        self.page_bytes = sum(self.sizes)
        self.pages = max(1, int(pool.size) // self.slots)

    def parts(self, host_indices: Any, pages: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        given = 0 if host_indices is None else len(host_indices)
        if given != pages * self.slots:
            raise ValueError(f"{given} host indices for {pages} pages of {self.slots} slots in pool '{self.name}'")
        addresses, sizes = self.pool.get_page_buffer_meta(host_indices)
        return np.array(addresses, dtype=np.uint64), np.array(sizes, dtype=np.uint64)


class _Pool(_Pages):
    """A host pool of SGLang, and the manager that stores its pages."""

    def __init__(self, name: str, pool: Any, storage: CairnStorage, like: _Pool | None) -> None:
        super().__init__(name, pool)
        self.manager = self._make(storage, self.sizes, like)
        self.hasher = self.manager.hasher

    def text(self) -> str:
        """For the log."""
        host, disk = self.manager.host, self.manager.disk
        on_disk = "no disk"
        if disk is not None:
            on_disk = f"{disk.capacity} on disk in {self.manager.config['disk.path']}, {disk.counts.registered} of them stored"
        return f"{0 if host is None else host.capacity} pages in host memory, {on_disk}"

    def prefix(self, hashes: Sequence[str]) -> int:
        """How many pages, from the first on, are stored."""
        return self.manager.locate(self.keys(hashes)).blocks

    def contains(self, hashes: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which of the pages are stored."""
        return self.manager.contains(self.keys(hashes)).astype(bool)

    def fetch(
        self, hashes: Sequence[str], parts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], seconds: float
    ) -> list[bool]:
        return self.manager.fetch_pages(self.keys(hashes), parts, sizes, deadline=seconds)

    def store(
        self, hashes: Sequence[str], parts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], seconds: float
    ) -> list[bool]:
        return self.manager.store_pages(self.keys(hashes), parts, sizes, deadline=seconds)

    def source(self) -> PageSource:
        """For the ranks that have the same pages."""

        def fetch(hashes: Sequence[str], parts: Any, sizes: Any, seconds: float) -> list[bool]:
            try:
                return self.fetch(hashes, parts, sizes, min(seconds, _DEADLINE))
            except Error as error:
                _log.warning("cairn: pages of pool %s for another rank failed: %s", self.name, error)
                return [False] * len(hashes)

        return PageSource(self.page_bytes, lambda hashes: self.contains(hashes).tolist(), fetch)

    def _make(self, storage: CairnStorage, sizes: list[int], like: _Pool | None) -> Manager:
        config = storage.config
        layout = f"{getattr(self.pool, 'layout', '-')} {getattr(self.pool, 'dtype', '-')} {sizes[0]}x{len(sizes)}"
        suffixes = [part for part in (_shard(config), f"dp{config.dp_rank}" if config.dp_rank else "") if part]
        if self.name != _KV:
            suffixes.append(self.name)
        shard = " ".join(["sglang", self.name, _shard(config) or "tp0of1", layout])
        shape = PageShape(tokens=self.slots, page_bytes=self.page_bytes, scheme="sglang", shard=shard)
        settings = shape.settings(config.model_name or "model", storage.settings)
        if like is not None:
            self._size_like(like, settings)
        if settings.get("disk.path") and suffixes:
            settings["disk.path"] = ".".join([str(settings["disk.path"]), *suffixes])
        return Manager(settings)

    def _size_like(self, like: _Pool, settings: dict[str, Any]) -> None:
        """As large in relation to the KV pool as in the engine, rounded up to a power of two: files keep their sizes when
        the engine's memory changes a little."""
        share = self.page_bytes * self.pages / (like.page_bytes * like.pages)
        share = 2.0 ** math.ceil(math.log2(share))
        for tier, pool in (("host", like.manager.host), ("disk", like.manager.disk)):
            if pool is not None:
                settings[f"{tier}.size"] = 0
                bytes_of_tier = pool.capacity * like.page_bytes * share
                settings[f"{tier}.blocks"] = max(STAGING_PAGES, int(bytes_of_tier / self.page_bytes))

    def keys(self, hashes: Sequence[str]) -> Keys:
        return sglang_page_keys(self.hasher, hashes)


class _PeerPool(_Pages):
    """A host pool of a rank whose pages rank 0 stores: all ranks of an MLA model have the same."""

    def __init__(self, name: str, pool: Any, address: str) -> None:
        super().__init__(name, pool)
        # SGLang looks pages up and copies them on threads of their own: no lookup waits for a copy.
        self._lookups = PageClient(address, name, self.page_bytes)
        self._copies = PageClient(address, name, self.page_bytes)

    def text(self) -> str:
        """For the log."""
        return "which rank 0 stores"

    def prefix(self, hashes: Sequence[str]) -> int:
        return int(np.cumprod(self.contains(hashes)).sum())

    def contains(self, hashes: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.array(self._lookups.exists(hashes, _DEADLINE), dtype=bool)

    def fetch(
        self, hashes: Sequence[str], parts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], seconds: float
    ) -> list[bool]:
        return self._copies.fetch(hashes, parts, sizes, seconds)

    def store(
        self, hashes: Sequence[str], parts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64], seconds: float
    ) -> list[bool]:
        return [True] * len(hashes)  # rank 0 is told the same

    def close(self) -> None:
        self._lookups.close()
        self._copies.close()


class CairnStorage(_base()):  # type: ignore[misc]
    """SGLang's HiCacheStorage on tiers of Cairn; docs/sglang.md says how to configure it.

    Any thread may call. A page that is damaged, missing or late is a miss, and no call takes longer than ten seconds.
    """

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None) -> None:
        _check_version()
        extra = storage_config.extra_config or {}
        if not extra.get("interface_v1"):
            raise ValueError('cairn.sglang needs SGLang\'s zero-copy interface; add "interface_v1": 1 to the extra config')
        self.config = storage_config
        self.settings = storage_settings({name: extra[name] for name in extra if name not in _SGLANG_KEYS}, "SGLang")
        # All ranks of an MLA model have the same pages: rank 0 stores them, and the others ask it.
        self._address = ""
        self._server: PageServer | None = None
        self._sources: dict[str, PageSource] = {}
        if storage_config.is_mla_model and storage_config.tp_size > 1:
            if "disk.path" not in self.settings:
                raise ValueError(
                    "with MLA and several tensor-parallel ranks Cairn needs disk.path, from which ranks know where rank 0 is"
                )
            where = f"{os.path.abspath(self.settings['disk.path'])} {_shard(storage_config)} dp{storage_config.dp_rank}"
            self._address = default_address(where).removeprefix("unix:")
        self._pools: dict[str, _Pool | _PeerPool] = {}
        self._stats_lock = threading.Lock()
        self._stats: dict[str, list[float]] = {}
        self._incidents = IncidentLogger(_log)

    # --- SGLang's host pools ---

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """SGLang's KV pool; opens its tiers."""
        self.mem_pool_host = mem_pool_host
        self._add_pool(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Another pool of a hybrid model; opens its tiers."""
        name = _name(host_pool_name)
        if name not in self._pools:  # the KV pool comes here too
            self._add_pool(name, host_pool)

    def _add_pool(self, name: str, host_pool: Any) -> None:
        pool: _Pool | _PeerPool
        if self._address and self.config.tp_rank > 0:
            pool = _PeerPool(name, host_pool, self._address)
        else:
            like = self._pools.get(_KV)
            pool = _Pool(name, host_pool, self, like if isinstance(like, _Pool) else None)
            if self._address:
                self._sources[name] = pool.source()
                self._server = self._server or PageServer(self._address, self._sources)
        self._pools[name] = pool
        _log.info("cairn: pool %s, %d bytes a page, %s", name, pool.page_bytes, pool.text())
        self._incidents.look(self.managers)

    # --- pages, by address ---

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many keys, from the first on, are stored. Answered from memory."""
        return self._pools[_KV].prefix(keys)

    def exists(self, key: str) -> bool:
        """Whether a page is stored."""
        return self.batch_exists([key]) == 1

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Copies pages to SGLang's host memory, verified; False for a page that must not be used."""
        return self._copy("prefetch", self._pools[_KV], keys, host_indices)

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Stores pages of SGLang's host memory; False for a page that is not stored."""
        return self._copy("backup", self._pools[_KV], keys, host_indices)

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """How many KV pages can be restored, given what the other pools of a hybrid model need."""
        kv_pages = self.batch_exists(keys, extra_info)
        hits: dict[Any, int] = {_KV: kv_pages} if kv_pages else {}
        restorable = np.ones(kv_pages, dtype=bool)  # element i: a prefix of i + 1 pages
        for transfer in pool_transfers or ():
            policy = _name(transfer.hit_policy)
            if policy == "block_groups":
                continue  # never limits the hit; a pool that is not reported has no verdict
            pool = self._pools[_name(transfer.name)]
            has = pool.contains(keys[:kv_pages])
            if policy == "trailing_pages":
                window = max(1, len(transfer.keys or ()))
                stored = np.concatenate(([0], np.cumsum(has)))
                ends = np.arange(1, kv_pages + 1)
                starts = np.maximum(ends - window, 0)
                usable = stored[ends] - stored[starts] == ends - starts
            else:
                usable = np.cumprod(has).astype(bool)
            if usable.any():
                hits[transfer.name] = int(np.flatnonzero(usable)[-1]) + 1
            restorable &= usable
        lengths = [int(i) + 1 for i in np.flatnonzero(restorable)]
        return importlib.import_module(_HICACHE).PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)

    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        """batch_get_v1() for the pools of a hybrid model."""
        return {each.name: self._copy_transfer("prefetch", each) for each in transfers}

    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        """batch_set_v1() for the pools of a hybrid model."""
        return {each.name: self._copy_transfer("backup", each) for each in transfers}

    def _copy_transfer(self, kind: str, transfer: Any) -> list[bool]:
        return self._copy(kind, self._pools[_name(transfer.name)], transfer.keys or [], transfer.host_indices)

    def _copy(self, kind: str, pool: _Pool | _PeerPool, hashes: list[str], host_indices: Any) -> list[bool]:
        if not hashes:
            return []
        began = time.perf_counter()
        try:
            parts, sizes = pool.parts(host_indices, len(hashes))
            copy = pool.fetch if kind == "prefetch" else pool.store
            done = copy(hashes, parts, sizes, _DEADLINE)
        except (Error, ValueError) as error:
            _log.warning("cairn: %s of %d pages of pool %s failed: %s", kind, len(hashes), pool.name, error)
            return [False] * len(hashes)
        pages = sum(done)
        if self.config.enable_storage_metrics and pages:
            with self._stats_lock:
                self._stats.setdefault(f"{kind}_pgs", []).append(pages)
                seconds = max(time.perf_counter() - began, 1e-9)
                self._stats.setdefault(f"{kind}_bandwidth", []).append(pages * pool.page_bytes / seconds / 1e9)
        if pages < len(done):
            self._incidents.look(self.managers)
        return done

    # --- the interface without addresses, which SGLang does not use with interface_v1 ---

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """Not supported; SGLang calls batch_get_v1()."""
        raise NotImplementedError("cairn.sglang has the zero-copy interface only")

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> Any:
        """Not supported; SGLang calls batch_get_v1()."""
        raise NotImplementedError("cairn.sglang has the zero-copy interface only")

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Not supported; SGLang calls batch_set_v1()."""
        raise NotImplementedError("cairn.sglang has the zero-copy interface only")

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        """Not supported; SGLang calls batch_set_v1()."""
        raise NotImplementedError("cairn.sglang has the zero-copy interface only")

    # --- control ---

    def clear(self) -> None:
        """Forgets everything that is stored, on disk too."""
        for manager in self.managers.values():
            manager.reset()

    def close(self) -> None:
        """Flushes and closes the tiers."""
        if self._server is not None:
            self._server.close()
        for pool in self._pools.values():
            if isinstance(pool, _Pool):
                pool.manager.close()
            else:
                pool.close()

    def get_stats(self) -> Any:
        """Pages and GB/s of the calls since the last one, for SGLang's metrics."""
        metrics = importlib.import_module("sglang.srt.observability.metrics_collector").StorageMetrics()
        with self._stats_lock:
            stats, self._stats = self._stats, {}
        for name, values in stats.items():
            setattr(metrics, name, values)
        self._incidents.look(self.managers)
        return metrics

    @property
    def managers(self) -> dict[str, Manager]:
        """The manager of each pool, for status and metrics; "kv" is that of the KV pages. None with MLA on other ranks than 0."""
        return {name: pool.manager for name, pool in self._pools.items() if isinstance(pool, _Pool)}


def _name(value: Any) -> str:
    """The text of a name that SGLang gives as an enumeration or a text."""
    return str(getattr(value, "value", value))
