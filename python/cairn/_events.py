"""Events: the changes of what a manager's tiers have cached, as an iterator and an async iterator."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, TypeAlias

from ._cairn import Event, FailedPreconditionError, Snapshot

if TYPE_CHECKING:
    from ._cairn import Manager

Change: TypeAlias = Event | Snapshot


class Events:
    """A cursor over the changes of what a manager's tiers have cached.

    `for change in events` yields what there is now and ends; a later loop goes on where it ended. `async for change in events`
    waits for more, until the manager is closed. A change is an Event, or a Snapshot if the cursor has none to start from or
    events were lost: pass either to ResidencyView.apply().
    """

    def __init__(self, manager: Manager, since: int | None = None, *, batch: int = 1024) -> None:
        self._manager = manager
        self._cursor = manager._event_cursor(since)
        self._batch = batch
        self._ready: collections.deque[Change] = collections.deque()

    @property
    def next_sequence(self) -> int:
        """The number of the next event that the cursor reads: `since` of a cursor that continues here."""
        return self._ready[0].sequence if self._ready else self._cursor.next_sequence

    def poll(self) -> list[Change]:
        """The next changes; empty if there is nothing new."""
        if self._ready:
            ready = list(self._ready)
            self._ready.clear()
            return ready
        events = self._cursor.poll(self._batch)
        if events is None:
            snapshot = self._manager.snapshot()
            self._cursor.resume_at(snapshot.sequence + 1)
            return [snapshot]
        return list(events)

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        if not self._ready:
            self._ready.extend(self.poll())
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        from . import _wakeups  # imports asyncio

        while not self._manager.closed:
            try:
                for change in self:
                    return change
                await _wakeups.wait_for_news(self._cursor)
            except FailedPreconditionError:
                if not self._manager.closed:  # by another thread, meanwhile
                    raise
        raise StopAsyncIteration

    def __repr__(self) -> str:
        return f"<cairn.Events next={self.next_sequence}>"
