"""CairnConnector for vLLM 0.32: all that touches vLLM.

The scheduler's instance and the workers' are of one class, with a role. Workers describe their KV cache when it is registered
and send that to the scheduler in the handshake; the scheduler then opens the cache, and every worker joins it over a socket
whose address both derive from the engine's id.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import vllm
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.distributed.kv_events import MEDIUM_CPU, MEDIUM_STORAGE, BlockRemoved, BlockStored, KVCacheEvent
from vllm.platforms import current_platform
from vllm.v1.core.kv_cache_utils import BlockHash, maybe_convert_block_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, MLAAttentionSpec, UniformTypeKVCacheSpecs
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import RequestStatus

import cairn

from . import metrics
from .pages import Declined, ModelFacts, PageFacts, Pages, describe
from .scheduler_side import SchedulerSide
from .settings import Settings, default_address, default_host_size
from .steps import Step
from .worker_side import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger("vllm.cairn")

_CONNECT_LIMIT = 120.0  # seconds until a worker gives up: the scheduler opens when all workers have described their caches
_RANKS_LIMIT = 300.0  # seconds that the scheduler waits for its workers: they pin memory, and open files
# How a request ends whose last step was computed as the engine says. What an aborted or failed one computed is not known.
_COMPUTED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_REPETITION)
# What the eviction policy is told of how a request ended. The scheduler does not know whether an answer that stopped is a tool
# call or the end of a turn: only the front end reads it.
_ENDINGS = {
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
    RequestStatus.FINISHED_ABORTED: "abort",
    RequestStatus.FINISHED_ERROR: "abort",
}


@dataclass
class CairnMetadata(KVConnectorMetadata):
    """What the workers get in every step. None: the cache is off."""

    step: Step | None


@dataclass
class CairnHandshake(KVConnectorHandshakeMetadata):
    """What a worker's KV cache looks like, or why Cairn cannot hold it."""

    facts: PageFacts | None
    declined: str = ""


# --- what the engine is ---


def block_facts(config: VllmConfig, kv_cache: KVCacheConfig) -> tuple[int, int]:
    """Tokens in a block, and the bytes of a page. Raises Declined."""
    parallel = config.parallel_config
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Declined(f"{name} is {getattr(parallel, name)}; Cairn's connector supports tensor and data parallel engines")
    if kv_cache.needs_kv_cache_zeroing:
        # The second model runner does so before it says that blocks are overwritten: saves could still be reading them.
        raise Declined("the engine zeroes blocks that it allocates: the model has Mamba layers, or KV caches of different precision")
    groups = kv_cache.kv_cache_groups
    if len(groups) != 1:
        kinds = ", ".join(type(group.kv_cache_spec).__name__ for group in groups)
        raise Declined(
            f"the model has {len(groups)} groups of KV cache layers ({kinds}), and Cairn's connector supports one. If the model has "
            "sliding windows, --disable-hybrid-kv-cache-manager makes one of them"
        )
    spec = groups[0].kv_cache_spec
    specs = list(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
    for each in specs:
        # Other kinds free blocks early, or keep what is not a function of the tokens before.
        if type(each) not in (FullAttentionSpec, MLAAttentionSpec):
            kind = type(each).__name__
            raise Declined(f"the model has a KV cache of {kind}; Cairn's connector supports full attention and MLA")
    if len({each.page_size_bytes for each in specs}) != 1:
        raise Declined("the layers of the model have pages of different sizes")
    hashed = kv_cache.hash_block_size or spec.block_size
    if hashed != spec.block_size:
        raise Declined(f"blocks have {spec.block_size} tokens and are hashed by {hashed}; leave prefix_match_unit out")
    return spec.block_size, specs[0].page_size_bytes


def model_facts(config: VllmConfig, kv_cache: KVCacheConfig, block_size: int, name: str | None) -> ModelFacts:
    """All that the bytes of a page depend on, beside tokens. Blocks are shared only if all of it is the same."""
    model = config.model_config
    speculative = config.speculative_config
    facts = {
        "revision": str(model.revision),
        "commit": str(getattr(model.hf_config, "_commit_hash", None)),
        "files": fingerprint(model.model),
        "overrides": hashlib.sha256(repr(model.hf_overrides).encode()).hexdigest()[:16],
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": str(model.quantization),
        "cache_dtype": str(config.cache_config.cache_dtype),
        "hash": config.cache_config.prefix_caching_hash_algo,
        "seed": os.environ.get("PYTHONHASHSEED", ""),
        "blocks": str(kv_cache.kv_cache_layout),
        "draft": str(speculative.model) if speculative else "",
        "backend": str(getattr(config, "attention_config", None) and config.attention_config.backend),
        "device": device_name(),
        "vllm": vllm.__version__,
    }
    return ModelFacts(
        name=name or model.model,
        block_size=block_size,
        tensor_parallel=config.parallel_config.tensor_parallel_size,
        replicas=kv_cache.kv_tp_replicas,
        facts=facts,
    )


def device_name() -> str:
    """What packs the pages: a GPU's name, or the instruction set of the CPU."""
    if current_platform.is_cpu():
        return f"cpu-{torch.backends.cpu.get_cpu_capability()}"
    return str(current_platform.get_device_name())


def fingerprint(model: str) -> str:
    """Names, sizes and times of the files of a model in a local folder: other weights under the same name have another one."""
    folder = Path(model)
    if not folder.is_dir():
        return ""
    files = sorted(
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in folder.iterdir()
        if file.suffix in (".json", ".safetensors", ".bin", ".pt", ".gguf") and file.is_file()
    )
    return hashlib.sha256(repr(files).encode()).hexdigest()[:16]


def scheduler_of(config: VllmConfig, settings: Settings, model: ModelFacts, pages: PageFacts, address: str) -> cairn.Scheduler:
    """Opens the cache. Raises cairn.Error, whose message lists all mistakes of the configuration."""
    keys = dict(settings.keys)
    parallel = config.parallel_config
    if not settings.has_tier():
        keys["host.size"] = default_host_size(parallel.data_parallel_size_local or 1)
        logger.info("Cairn: no tier has a size, so host.size is %.1f GiB", keys["host.size"] / (1 << 30))
    if parallel.data_parallel_size > 1:
        keys["dp_rank"] = parallel.data_parallel_rank
        if "disk.path" in keys:
            keys["disk.path"] = f"{keys['disk.path']}.dp{parallel.data_parallel_rank}"
    keys |= model.keys(pages)
    options = dict(settings.options)
    if settings.in_step and config.speculative_config is not None:
        options.setdefault("in_step_save_blocks", 0)  # the step ends after its outcomes are taken: the drafter runs in between
    return cairn.Scheduler(
        settings.config_file,
        device_blocks=pages.blocks,
        ranks=model.tensor_parallel,
        address=address,
        secret=settings.secret,
        load_mode=settings.load_mode,  # type: ignore[arg-type]  # checked
        options=options,
        environment=True,
        **keys,
    )


# --- metrics ---


class CairnStats(KVConnectorStats):
    """Figures since the last report."""

    data: dict[str, Any]

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        self.data = metrics.add(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        return metrics.summary(self.data)

    def is_empty(self) -> bool:
        return not self.data


class CairnPromMetrics(KVConnectorPromMetrics):
    """The same figures for the engine's /metrics."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)

        def make(kind: Any, figures: dict[str, tuple[str, str]], **more: Any) -> dict[str, Any]:
            made = {}
            for name, (text, label) in figures.items():
                labels = [*labelnames, label] if label else labelnames
                made[name] = kind(name=f"vllm:cairn_{name}", documentation=text, labelnames=labels, **more)
            return made

        self._counters = make(self._counter_cls, metrics.COUNTERS)
        self._gauges = make(self._gauge_cls, metrics.GAUGES, multiprocess_mode="mostrecent")

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        engine = self.per_engine_labelvalues[engine_idx]
        for name, values in transfer_stats_data.get("counters", {}).items():
            for label, value in values.items():
                self._counters[name].labels(*engine, *([label] if label else [])).inc(value)
        for name, values in transfer_stats_data.get("gauges", {}).items():
            for label, value in values.items():
                self._gauges[name].labels(*engine, *([label] if label else [])).set(value)


# --- the connector ---


class CairnConnector(KVConnectorBase_V1, SupportsHMA):
    """Verified host and disk tiers for vLLM's KV cache, warm after a restart; docs/vllm.md."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self._settings = Settings.of(transfer.kv_connector_extra_config)
        recomputes = transfer.kv_load_failure_policy == "recompute"
        if self._settings.in_step and recomputes and vllm_config.scheduler_config.async_scheduling:
            # When a load of a step fails, vLLM has scheduled the next one, and computes again from tokens that it does not have.
            self._settings.load_mode = "async"
            if role == KVConnectorRole.SCHEDULER:
                logger.warning(
                    "Cairn: with asynchronous scheduling, load_mode in_step needs kv_load_failure_policy fail: vLLM would crash when a "
                    "load fails. Loads are async; --no-async-scheduling allows in_step"
                )
        self._address = self._settings.address or default_address(str(transfer.engine_id))
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        self._reporter: metrics.Reporter | None = None
        self._pages: Pages | None = None
        self._failed_blocks: set[int] = set()
        self._event: Callable[[], Any] = lambda: None
        self._declined = ""
        try:
            self._block_size, self._page_bytes = block_facts(vllm_config, kv_cache_config)
        except Declined as reason:
            self._decline(str(reason))

    def _decline(self, reason: str) -> None:
        self._declined = reason
        if self.role == KVConnectorRole.SCHEDULER:
            logger.warning("Cairn is off, and the engine runs without it: %s", reason)

    # --- start and end ---

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return Settings.of(extra_config).in_step

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: what is not saved is a miss later

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        if self._declined:
            return
        try:
            self._pages = describe(kv_caches, self._kv_cache_config.num_blocks, self._block_size, self._page_bytes)
        except Declined as reason:
            self._decline(str(reason))

    def get_handshake_metadata(self) -> CairnHandshake:
        if self._declined or self._pages is None:
            return CairnHandshake(None, self._declined or "the engine registered no KV cache")
        if self._worker is None:
            pages = self._pages
            rank = get_tensor_model_parallel_rank()
            ranks = self._vllm_config.parallel_config.tensor_parallel_size
            self._worker = WorkerSide(
                lambda: cairn.Worker(
                    pages.group,
                    leader=self._address,
                    rank=rank,
                    ranks=ranks,
                    secret=self._settings.secret,
                    limits={"first_connection": _CONNECT_LIMIT},
                ),
                pages.names,
                in_step=self._settings.in_step,
            )
            cuda = next(iter(pages.group.tensors)).device.type == "cuda"
            self._event = torch.cuda.current_stream if cuda else lambda: None
        return CairnHandshake(self._pages.facts)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]) -> None:
        self._open(metadata.values())

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        self._open(metadata.values())

    def _open(self, handshakes: Iterable[KVConnectorHandshakeMetadata]) -> None:
        workers = [each for each in handshakes if isinstance(each, CairnHandshake)]
        declined = next((each.declined for each in workers if each.facts is None), "")
        if declined and not self._declined:
            self._decline(declined)
        facts = {each.facts for each in workers if each.facts is not None}
        if self._declined or len(facts) != 1:
            if not self._declined:
                self._decline(f"the workers have KV caches of different shapes: {facts}")
            return
        pages = facts.pop()
        assert pages is not None
        config = self._vllm_config
        settings = self._settings
        model = model_facts(config, self._kv_cache_config, self._block_size, settings.keys.pop("model.name", None))
        scheduler = scheduler_of(config, settings, model, pages, self._address)
        try:
            scheduler.wait_for_ranks(_RANKS_LIMIT)
        except cairn.Error:
            scheduler.close()
            raise
        events = config.kv_events_config is not None and config.kv_events_config.enable_kv_cache_events
        self._scheduler = SchedulerSide(scheduler, self._block_size, in_step=settings.in_step, events=events)
        self._reporter = metrics.Reporter(scheduler)
        for tier in scheduler.status().tiers:
            if tier.tier in ("G2", "G3"):
                logger.info("Cairn: %s: %d blocks, of which %d are in use", tier.place, tier.blocks, tier.registered)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None

    # --- the scheduler's side ---

    def on_new_request(self, request: Request) -> None:
        if self._scheduler is not None:
            self._scheduler.add(request.request_id, request._all_token_ids, request.block_hashes)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        if self._scheduler is None:
            return 0, False
        return self._scheduler.match(request.request_id, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if self._scheduler is not None and num_external_tokens > 0:
            self._scheduler.allocated(request.request_id, blocks.get_block_ids()[0], num_external_tokens)

    def get_external_cache_hit_sources(self, request: Request, num_external_tokens: int) -> dict[CacheHitSource, int]:
        if self._scheduler is None or num_external_tokens == 0:
            return {}
        host, disk = self._scheduler.sources(request.request_id, num_external_tokens)
        return {source: tokens for source, tokens in ((CacheHitSource.HOST, host), (CacheHitSource.DISK, disk)) if tokens}

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> CairnMetadata:
        if self._scheduler is None:
            return CairnMetadata(None)
        new, cached = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
        ids, computed, blocks = cached.req_ids, cached.num_computed_tokens, cached.new_block_ids
        whole = cached.resumed_req_ids
        if new:
            ids = [each.req_id for each in new] + ids
            computed = [each.num_computed_tokens for each in new] + computed
            blocks = [each.block_ids for each in new] + blocks
            whole = whole.union(each.req_id for each in new)
        return CairnMetadata(
            self._scheduler.build(
                ids, computed, blocks, scheduler_output.num_scheduled_tokens, whole, scheduler_output.preempted_req_ids or ()
            )
        )

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        if self._scheduler is not None:
            self._scheduler.received(connector_output.finished_recving or ())

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        if self._scheduler is None:
            return False, None
        computed = request.num_computed_tokens if request.status in _COMPUTED else None
        ending = _ENDINGS.get(request.status, "unknown")
        return self._scheduler.finish(request.request_id, computed, ending), None

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.has_work()

    def reset_cache(self) -> bool | None:
        if self._scheduler is None:
            return None
        self._scheduler.reset()
        return True

    # --- the worker's side ---

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        assert isinstance(kv_connector_metadata, CairnMetadata)
        if self._worker is not None and kv_connector_metadata.step is not None:
            self._worker.bind(kv_connector_metadata.step)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        assert isinstance(connector_metadata, CairnMetadata)
        if self._worker is not None and connector_metadata.step is not None:
            # By now blocks that have to be zeroed or copied are; what the step computes does not touch blocks that are loaded.
            self._worker.bind(connector_metadata.step)
            self._worker.start_load(self._event())

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Loads began when the step was bound."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._worker is not None:
            self._worker.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.save_layer(layer_name, self._event)

    def wait_for_save(self) -> None:
        if self._worker is not None:
            self._worker.save_step(self._event())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        if self._worker is None:
            return None, None
        taken = self._worker.take()
        self._failed_blocks = taken.failed_blocks
        return taken.sent, taken.received

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    # --- metrics and events ---

    def take_events(self) -> Iterable[KVCacheEvent]:
        events = self._scheduler.events if self._scheduler is not None else None
        if events is None:
            return
        for event in events.take():
            medium = MEDIUM_CPU if event.tier == "host" else MEDIUM_STORAGE
            hashes = [maybe_convert_block_hash(BlockHash(digest)) for digest in event.digests]
            if event.stored:
                parent = None if event.parent is None else maybe_convert_block_hash(BlockHash(event.parent))
                yield BlockStored(
                    block_hashes=hashes,
                    parent_block_hash=parent,
                    token_ids=event.token_ids,
                    block_size=self._block_size,
                    lora_id=None,
                    medium=medium,
                    lora_name=None,
                    group_idx=0,
                )
            else:
                yield BlockRemoved(block_hashes=hashes, medium=medium, group_idx=0)

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._reporter is None or self._scheduler is None:
            return None
        data = self._reporter.report(self._scheduler.short_loads)
        return None if data is None else CairnStats(data)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return CairnStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> KVConnectorPromMetrics | None:
        return CairnPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
