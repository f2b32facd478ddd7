"""Pages of an engine's own host memory in tiers of Cairn: what plug-ins below an engine's host tier have in common.

A page is opaque: some bytes under a digest of the engine. Manager.store_pages() and Manager.fetch_pages() copy them.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import Manager
from ._settings import flatten

# What the pages of the engine decide.
_OWN_KEYS = {
    "block_size",
    *(f"model.{key}" for key in ("layers", "kv", "heads", "head_size", "element_type", "scheme", "shard")),
}
_STAGING_BYTES = 256 << 20
STAGING_PAGES = 64


def storage_settings(given: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The manager's keys, dotted, of what the operator gave and of the file that its "config_file" names. Raises ValueError if
    one has no meaning here, or if no tier has storage."""
    settings = flatten(given)
    if file := settings.pop("config_file", None):
        try:
            tomllib = importlib.import_module("tomllib")
        except ModuleNotFoundError as error:
            raise ValueError('"config_file" needs Python 3.11 or later; give the keys of the file in the extra config') from error
        with open(file, "rb") as opened:
            settings = {**flatten(tomllib.load(opened)), **settings}
    wrong = [name for name in settings if name in _OWN_KEYS or name.partition(".")[0] == "device"]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)} in the configuration: {engine}'s pages decide these, and there is no device tier; remove them"
        )
    if not any(name in settings for name in ("disk.path", "host.size", "host.blocks")):
        raise ValueError(
            'the configuration of Cairn has no storage: give "disk.path" and "disk.size", or "host.size", in the extra config '
            'or in the file that its "config_file" names'
        )
    return settings


@dataclass(frozen=True)
class PageShape:
    """What the pages of one file have in common."""

    tokens: int
    page_bytes: int
    scheme: str  # of keys: vllm or sglang
    shard: str  # all that the bytes depend on, beside model and tokens: part of the namespace

    def settings(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a manager for these pages."""
        if self.page_bytes % 8:
            raise ValueError(f"pages of {self.page_bytes} bytes; Cairn stores pages whose size is a multiple of 8")
        tokens = self.tokens if self.page_bytes % (8 * self.tokens) == 0 else 1
        settings: dict[str, Any] = {
            "model.name": model,
            "event_log": 0,
            "host.pinning": "off",
            "offload.disk.mode": "off",  # pages are saved when the engine says so
            "offload.disk.queue": 1 << 20,
            **given,
        }
        if "host.size" not in settings and "host.blocks" not in settings:
            is_large = STAGING_PAGES * self.page_bytes > _STAGING_BYTES
            settings.update({"host.blocks": STAGING_PAGES} if is_large else {"host.size": _STAGING_BYTES})
        settings.update(
            {
                "block_size": tokens,
                "model.layers": 1,
                "model.kv": 1,
                "model.heads": 1,
                "model.head_size": self.page_bytes // tokens,
                "model.element_type": "uint8",
                "model.scheme": self.scheme,
                "model.shard": self.shard,
            }
        )
        return settings


class IncidentLogger:
    """Logs what operators should know of, once. Any thread may call."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def look(self, managers: Mapping[str, Manager]) -> None:
        """Logs new incidents of the managers, by name."""
        with self._lock:
            for name, manager in managers.items():
                status = manager.status()
                new = status.incident_count - self._seen.get(name, 0)
                self._seen[name] = status.incident_count
                for incident in status.incidents[-new:] if new else ():
                    self._log.warning("cairn: pool %s: %s: %s", name, incident.kind, incident.text)
