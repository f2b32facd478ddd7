"""CairnTier for vLLM 0.32: all of it that touches vLLM. All calls come from the scheduler's thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import vllm
from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, OffloadKey, ReqContext, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob
from vllm.v1.metrics.cache_hit_source import CacheHitSource

import cairn

from .._page_store import PageShape, storage_settings
from .chunks import ChunkStore, logger
from .v0_32 import device_name, fingerprint

if TYPE_CHECKING:
    from vllm.v1.kv_offload.base import OffloadingSpec
    from vllm.v1.kv_offload.config import OffloadingConfig
    from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector


def shard_of(config: OffloadingConfig) -> str:
    """All that the bytes of a chunk depend on, beside the model's name and the tokens."""
    parallel, model = config.parallel, config.model
    groups = [(group.tokens_per_block, group.layer_names) for group in config.groups]
    facts = {
        "files": fingerprint(model.name),
        "dtype": model.dtype,
        "groups": repr(groups),
        "blocks": config.cache.blocks_per_chunk,
        "hashed": config.cache.tokens_per_hash,
        "seed": os.environ.get("PYTHONHASHSEED", ""),
        "parallel": (parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size),
        "layout": (config.kv_cache_layout, config.canonical_layout, config.replicated_layout),
        "device": device_name(),
        "vllm": vllm.__version__,
    }
    return "vllm chunks " + ";".join(f"{name}={value}" for name, value in facts.items())


class CairnTier(SecondaryTierManager):
    """Verified host and disk tiers of Cairn below vLLM's own host tier."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: BackpressureDetector | None = None,
        locality: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        config = offloading_spec.config
        given = storage_settings(settings, "vLLM")
        if "disk.path" not in given:
            self.cache_hit_source = CacheHitSource.HOST
        elif config.parallel.data_parallel_size > 1:
            given["disk.path"] = f"{given['disk.path']}.dp{config.parallel.data_parallel_index}"
        shape = PageShape(
            tokens=max(group.tokens_per_block for group in config.groups) * config.cache.blocks_per_chunk,
            page_bytes=self.block_size_bytes,
            scheme="vllm",
            shard=shard_of(config),
        )
        manager = cairn.Manager(shape.settings(config.model.name, given))
        for tier in manager.status().tiers:
            logger.info("Cairn: %s: %d chunks, of which %d are in use", tier.place, tier.blocks, tier.registered)
        # The address alone: vLLM cannot close the memory while an array refers to it, and closes it after shutdown().
        address = np.asarray(primary_kv_view).ctypes.data
        self._chunks = ChunkStore(manager, address, self.block_size_bytes)
        self._loads: dict[int, str] = {}  # the request of each load in flight
        self._missed: dict[str, set[OffloadKey]] = {}  # what could not be loaded, of requests that are not finished

    @property
    def manager(self) -> cairn.Manager:
        """For status and metrics."""
        return self._chunks.manager

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Whether a tier has the chunk. A chunk that could not be loaded is a miss for its request from then on, or the request
        would ask for it forever."""
        if key in self._missed.get(req_context.req_id, ()):
            return LookupResult.MISS
        return LookupResult.HIT if self._chunks.has(key) else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Starts to store chunks; those that are stored already are not copied."""
        self._chunks.store(job_metadata.job_id, job_metadata.keys, job_metadata.chunk_ids)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Starts to load chunks, verified."""
        self._loads[job_metadata.job_id] = job_metadata.req_context.req_id
        self._chunks.load(job_metadata.job_id, job_metadata.keys, job_metadata.chunk_ids)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """The jobs that have ended since the last call."""
        return [self._result(job) for job in self._chunks.finished()]

    def _result(self, job: Any) -> JobResult:
        loaded = tuple(OffloadKey(name) for name, done in zip(job.names, job.done, strict=True) if done)
        whole = len(loaded) == len(job.names)
        if job.is_load:
            request = self._loads.pop(job.job)
            if not whole and request in self._missed:
                self._missed[request].update(set(job.names).difference(loaded))
        return JobResult(
            job_id=job.job,
            success=whole,
            successful_keys=loaded if job.is_load and loaded and not whole else None,
            transfer_time=job.seconds,
            transfer_bytes=len(loaded) * self.block_size_bytes,
        )

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Chunks are stored as they come."""
        self._missed[req_context.req_id] = set()
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Forgets what the request missed."""
        self._missed.pop(req_context.req_id, None)

    def drain_jobs(self) -> None:
        """Waits until nothing touches vLLM's memory."""
        self._chunks.drain()

    def shutdown(self) -> None:
        """Ends all copies and closes the tiers."""
        self._chunks.close()
