"""What caches would make of a trace: `hitrate` for every policy and size, `replay` on simulated workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from . import traces
from ._cairn import HitrateRow, HitrateTier, TraceRow, _measure, _replay

if TYPE_CHECKING:
    import pandas

    Trace = str | os.PathLike[str] | Iterable[TraceRow]

__all__ = ["HitrateResult", "HitrateRow", "HitrateTier", "ReplayResult", "hitrate", "replay"]


class HitrateResult(Sequence[HitrateRow]):
    """The rows of `hitrate`, one for each policy and capacity of each trace, in the order given."""

    def __init__(self, rows: Iterable[HitrateRow]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> HitrateRow: ...
    @overload
    def __getitem__(self, index: slice) -> HitrateResult: ...
    def __getitem__(self, index: int | slice) -> HitrateRow | HitrateResult:
        return HitrateResult(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<cairn.HitrateResult: {len(self)} runs, {', '.join(dict.fromkeys(row.policy for row in self))}>"

    def best(self) -> HitrateRow:
        """The run with the highest hit ratio, bounds (opt, opt-insert and infinite) excluded."""
        return max((row for row in self if row.policy not in ("opt", "opt-insert", "infinite")), key=lambda row: row.hit_ratio)

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows as dicts, lower tiers included."""
        return [{**row.to_dict(), "tiers": [tier.to_dict() for tier in row.tiers]} for row in self]

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame, without the lower tiers. Needs pandas."""
        import pandas

        return pandas.DataFrame([{k: v for k, v in row.to_dict().items() if k != "tiers"} for row in self])


def hitrate(
    trace: Trace,
    *more: Trace,
    policies: str | Sequence[str] = "all",
    capacities: Sequence[int | str] = ("1%", "2%", "5%", "10%", "20%"),
    tiers: Sequence[int | str] = (),
    admit: str = "likely",
    hints: bool = False,
    leaves_first: bool = False,
    block_size: int = 512,
) -> HitrateResult:
    """Compute the hit rate of each eviction policy on traces, for caches of several sizes, on all cores.

    A trace is a file, or rows of `cairn.traces`. `policies` are names, "opt", "infinite" or "all". Capacities are numbers of
    blocks, or shares of a trace's distinct blocks ("5%"). A block that one tier evicts moves to the next of `tiers` if
    `admit` (all, likely, twice) allows it. `hints` gives policies what an engine could know. Ctrl-C stops after the runs that
    were begun.
    """
    names = [policies] if isinstance(policies, str) else list(policies)
    rows: list[HitrateRow] = []
    for one in (trace, *more):
        source = os.fspath(one) if isinstance(one, (str, os.PathLike)) else list(one)
        rows += _measure(
            source, names, [str(c) for c in capacities], [str(t) for t in tiers], admit, hints, leaves_first, block_size
        )
    return HitrateResult(rows)


class ReplayResult:
    """The report of a `replay`. All times are virtual, in milliseconds unless the name says otherwise."""

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    @property
    def complete(self) -> bool:
        """Whether the trace was replayed to its end."""
        return bool(self._report["more"]["complete"])

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run."""
        return dict(self._report["config"])

    @property
    def metrics(self) -> dict[str, float]:
        """Every figure by its name, such as `mean_ttft_ms`, `p99_itl_ms` and `request_throughput_rps`."""
        return dict(self._report["report"])

    @property
    def hit_ratio(self) -> float:
        """The share of all prompt tokens that were found in a cache."""
        return float(self._report["report"]["prefix_cache_reused_ratio"])

    @property
    def hit_ratio_by_tier(self) -> dict[str, float]:
        """The parts of `hit_ratio` that came from each tier."""
        return dict(self._report["more"]["hit_ratio_by_tier"])

    @property
    def completed_requests(self) -> int:
        """Requests that were answered."""
        return int(self._report["report"]["completed_requests"])

    @property
    def duration_ms(self) -> float:
        """From the first arrival to the last token."""
        return float(self._report["report"]["duration_ms"])

    @property
    def tiers(self) -> list[dict[str, Any]]:
        """What each tier below the workers' caches did."""
        return list(self._report["more"]["tiers"])

    @property
    def series(self) -> list[dict[str, Any]]:
        """The figures over time, one dict for each interval."""
        return list(self._report["series"]["points"])

    def to_dict(self) -> dict[str, Any]:
        """The whole report, as `cairn replay --json` writes it."""
        return self._report

    def to_pandas(self) -> pandas.DataFrame:
        """The figures over time as a data frame. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.series).set_index("begin_s")

    def __repr__(self) -> str:
        ttft = self.metrics["mean_ttft_ms"]
        return f"<cairn.ReplayResult: {self.completed_requests} requests, hit ratio {self.hit_ratio:.4f}, mean TTFT {ttft:.1f} ms>"


def replay(
    trace: Trace,
    *,
    workers: int = 1,
    engine: str | os.PathLike[str] | None = None,
    block_size: int | None = None,
    blocks: int | None = None,
    host_blocks: int | None = None,
    disk_blocks: int | None = None,
    device_size: int | str | None = None,
    host_size: int | str | None = None,
    disk_size: int | str | None = None,
    host_bandwidth: float | str | None = None,
    disk_bandwidth: float | str | None = None,
    kv_bytes: int | None = None,
    policy: str | None = None,
    placement: str = "round-robin",
    profile: str = "strict",
    speedup: float = 1,
    rate: float = 0,
    concurrency: int = 0,
    max_seqs: int = 256,
    batch_tokens: int = 8_192,
    chunked_prefill: bool = True,
    prefix_caching: bool = True,
    costs: str | os.PathLike[str] | None = None,
    settings: Mapping[str, object] | None = None,
    strict: bool = False,
) -> ReplayResult:
    """Replay a trace on simulated workers, in virtual time.

    A trace is a file, or rows of `cairn.traces`. `engine` is a GPU with a model, such as "h200-8b". `device_size` or `blocks` is
    the cache of each worker; those of host and disk are tiers below it, with bandwidths in GB/s. `costs` is a file of measured
    compute times. `settings` are keys of the manager's configuration, such as {"host.policy": "lru"}. With `strict`, an invalid
    row of the trace is an error. Ctrl-C stops it. The options and their defaults are those of `cairn replay`.
    """
    options: dict[str, object] = {
        "engine": None if engine is None else os.fspath(engine),
        "workers": workers,
        "block-size": block_size,
        "blocks": blocks,
        "host-blocks": host_blocks,
        "disk-blocks": disk_blocks,
        "device-size": device_size,
        "host-size": host_size,
        "disk-size": disk_size,
        "host-bandwidth": host_bandwidth,
        "disk-bandwidth": disk_bandwidth,
        "kv-bytes": kv_bytes,
        "policy": policy,
        "placement": placement,
        "profile": profile,
        "speedup": speedup,
        "rate": rate,
        "concurrency": concurrency,
        "max-seqs": max_seqs,
        "batch-tokens": batch_tokens,
        "chunked-prefill": "on" if chunked_prefill else "off",
        "prefix-caching": "on" if prefix_caching else "off",
        "costs": None if costs is None else os.fspath(costs),
        **(settings or {}),
    }
    texts = [(name, str(value)) for name, value in options.items() if value is not None]
    # Imported here, because `import cairn` should take no time.
    import json
    import tempfile

    if isinstance(trace, (str, os.PathLike)):
        return ReplayResult(json.loads(_replay(os.fspath(trace), texts, strict)))

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.jsonl")
        traces.write(path, trace)
        return ReplayResult(json.loads(_replay(path, texts, strict)))
