"""The figures that the connector reports to the engine: what was counted since the last report, and what the tiers hold."""

from __future__ import annotations

import time
from typing import Any

import cairn

# By name: help, and the label that tells its values apart. Prometheus gets them as `vllm:cairn_<name>`.
COUNTERS: dict[str, tuple[str, str]] = {
    "prompt_tokens": ("Tokens of prompts, by where their KV came from.", "source"),
    "not_loaded_tokens": ("Tokens that tiers had and that were not loaded, by reason.", "reason"),
    "saved_tokens": ("Tokens whose KV was saved.", ""),
    "dropped_tokens": ("Tokens whose KV was not saved, by reason.", "reason"),
    "failed_loads": ("Loads that did not bring all of their tokens.", ""),
    "damaged_blocks": ("Blocks whose checksum was wrong when they were read; they were dropped.", ""),
    "evicted_blocks": ("Blocks that a tier evicted.", "tier"),
}
GAUGES: dict[str, tuple[str, str]] = {
    "stored_blocks": ("Blocks that a tier holds.", "tier"),
    "capacity_blocks": ("Blocks that a tier has room for.", "tier"),
    "tier_up": ("1 if the tier is in use, 0 if it is suspended because it fails.", "tier"),
}

_TIERS = {"G2": "host", "G3": "disk"}
Figures = dict[str, dict[str, float]]  # by name and label


class Reporter:
    """Reads the counters of a scheduler at most once a second."""

    def __init__(self, scheduler: cairn.Scheduler, interval: float = 1.0) -> None:
        self._scheduler = scheduler
        self._interval = interval
        self._next = 0.0
        self._last: Figures = {}

    def report(self, failed_loads: int) -> dict[str, Any] | None:
        """What is new since the last report; None if it is too early."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + self._interval
        counters, gauges = self._read(failed_loads)
        news: Figures = {}
        for name, values in counters.items():
            before = self._last.get(name, {})
            more = {label: value - before.get(label, 0) for label, value in values.items() if value > before.get(label, 0)}
            if more:
                news[name] = more
        self._last = counters
        return {"counters": news, "gauges": gauges}

    def _read(self, failed_loads: int) -> tuple[Figures, Figures]:
        total = self._scheduler.counts().total
        status = self._scheduler.status()
        tiers = {_TIERS[tier.tier]: tier for tier in status.tiers if tier.tier in _TIERS}
        counters: Figures = {
            "prompt_tokens": {
                "device": total.device,
                "host": total.loaded_host,
                "disk": total.loaded_disk,
                "computed": total.computed,
            },
            "not_loaded_tokens": {"too_slow": total.too_slow, "failed": total.failed, "skipped": total.skipped},
            "saved_tokens": {"": total.saved},
            "dropped_tokens": {
                "filtered": total.dropped_filtered,
                "shed": total.dropped_shed,
                "unavailable": total.dropped_unavailable,
                "failed": total.dropped_failed,
            },
            "failed_loads": {"": failed_loads},
            "damaged_blocks": {"": sum(link.mismatched for link in status.links)},
            "evicted_blocks": {name: tier.evicted for name, tier in tiers.items()},
        }
        gauges: Figures = {
            "stored_blocks": {name: tier.registered for name, tier in tiers.items()},
            "capacity_blocks": {name: tier.blocks for name, tier in tiers.items()},
            "tier_up": {name: float(tier.reading.is_up and tier.writing.is_up) for name, tier in tiers.items()},
        }
        return counters, gauges


def add(to: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Two reports as one: counters add up, gauges are the latest."""
    counters: Figures = {name: dict(values) for name, values in to.get("counters", {}).items()}
    for name, values in more.get("counters", {}).items():
        mine = counters.setdefault(name, {})
        for label, value in values.items():
            mine[label] = mine.get(label, 0) + value
    return {"counters": counters, "gauges": more.get("gauges") or to.get("gauges", {})}


def summary(data: dict[str, Any]) -> dict[str, int | float]:
    """One line of the engine's log."""
    line: dict[str, int | float] = {}
    for kind in ("counters", "gauges"):
        for name, values in data.get(kind, {}).items():
            for label, value in values.items():
                line[f"{name} {label}".strip()] = int(value)
    return line
