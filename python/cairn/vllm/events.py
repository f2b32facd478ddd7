"""What the tiers have cached, as events that name blocks by the engine's digests.

Cairn's keys cannot be turned back into digests, so the digests of live requests and of stored blocks are kept here. Blocks that
a disk tier has from before a restart have no digest until a request has them again; their events are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import cairn

_TIERS = {"G2": "host", "G3": "disk"}


@dataclass
class TierEvent:
    """Blocks that a tier has from now on, or has no longer."""

    stored: bool
    tier: str  # host or disk
    digests: list[bytes]
    parent: bytes | None = None  # of the first stored block
    token_ids: list[int] = field(default_factory=list)  # empty unless event_token_ids is on


class EventTranslator:
    """Reads the events of a manager's log."""

    def __init__(self, manager: cairn.Manager) -> None:
        self._hasher = manager.hasher
        self._events = manager.events(since=1)
        self._ready: list[TierEvent] = []  # not taken
        self._requests: dict[str, list[bytes]] = {}  # live ones: the engine's lists
        self._digests: dict[cairn.Key, tuple[bytes, bytes | None]] = {}  # and the parent's
        self._stored: dict[str, set[cairn.Key]] = {tier: set() for tier in _TIERS.values()}

    def watch(self, request: str, digests: list[bytes]) -> None:
        """A request whose blocks may be stored from now on."""
        self._requests[request] = digests
        self._learn(digests)

    def forget(self, request: str) -> None:
        """The request is gone, and so are its saves: what was stored of it is in the log."""
        self._ready.extend(self._read())
        self._drop(cairn.vllm_keys(self._hasher, self._requests.pop(request, [])))

    def _learn(self, digests: list[bytes]) -> None:
        keys = cairn.vllm_keys(self._hasher, digests)
        self._digests.update(zip(keys, zip(digests, [None, *digests], strict=False), strict=True))

    def _drop(self, keys: Iterable[cairn.Key]) -> None:
        for key in keys:
            if not any(key in stored for stored in self._stored.values()):
                self._digests.pop(key, None)

    def take(self) -> list[TierEvent]:
        """What has changed since the last call."""
        self._ready.extend(self._read())
        ready, self._ready = self._ready, []
        return ready

    def _read(self) -> Iterator[TierEvent]:
        for change in self._events:
            if isinstance(change, cairn.Snapshot):  # events were lost: what is known is told anew
                for name, tier in _TIERS.items():
                    yield from self._remove(tier, list(self._stored[tier]))
                    if name in change.tiers:
                        for key in change.keys(name):
                            yield from self._store(tier, [key], [])
            elif change.tier in _TIERS:
                tier = _TIERS[change.tier]
                if change.kind == "stored":
                    yield from self._store(tier, list(change.keys), list(change.token_ids))
                elif change.kind == "removed":
                    yield from self._remove(tier, list(change.keys))
                elif change.kind in ("cleared", "invalidated"):
                    yield from self._remove(tier, list(self._stored[tier]))

    def _store(self, tier: str, keys: list[cairn.Key], token_ids: list[int]) -> Iterator[TierEvent]:
        if any(key not in self._digests for key in keys):
            for digests in self._requests.values():  # they have grown
                self._learn(digests)
        if all(key in self._digests for key in keys):
            self._stored[tier].update(keys)
            known = [self._digests[key] for key in keys]
            yield TierEvent(True, tier, [digest for digest, _ in known], known[0][1], token_ids)

    def _remove(self, tier: str, keys: list[cairn.Key]) -> Iterator[TierEvent]:
        removed = [self._digests[key][0] for key in keys if key in self._stored[tier]]
        self._stored[tier].difference_update(keys)
        self._drop(keys)
        if removed:
            yield TierEvent(False, tier, removed)
