"""Lets an event loop await copies and events. A thread of Cairn that ends a copy or adds an event posts a number to the loop's
eventfd and never takes the GIL; the loop reads the numbers."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any

from ._cairn import _EventCursor, _Wakeups


class _LoopWakeups:
    """The eventfd of one loop. The loop watches it while something is awaited."""

    def __init__(self) -> None:
        self._wakeups = _Wakeups()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, watched: Any, loop: asyncio.AbstractEventLoop) -> None:
        number = next(self._numbers)
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.add_reader(self._wakeups.fileno(), self._take)
        self._waiting[number] = future
        try:
            if watched._watch(self._wakeups, number):
                try:
                    await future
                finally:
                    watched._unwatch(self._wakeups, number)
        finally:
            self._waiting.pop(number, None)
            if not self._waiting:
                loop.remove_reader(self._wakeups.fileno())

    def _take(self) -> None:
        for number in self._wakeups.take():
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(None)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWakeups] = weakref.WeakKeyDictionary()


async def _watch(watched: Any) -> None:
    loop = asyncio.get_running_loop()
    wakeups = _loops.get(loop)
    if wakeups is None:
        wakeups = _loops[loop] = _LoopWakeups()
    await wakeups.wait(watched, loop)


async def wait(copy: Any) -> Any:
    """Waits until the copy has ended, without blocking the loop, and returns its outcome."""
    if not copy.done():
        try:
            await _watch(copy)
        except asyncio.CancelledError:
            copy.cancel()
            raise
    return copy.result()


async def wait_for_news(cursor: _EventCursor) -> None:
    """Waits until the cursor may have new events, or its manager is closed."""
    await _watch(cursor)
