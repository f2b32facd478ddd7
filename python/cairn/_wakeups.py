"""Lets an event loop await copies. A thread of Cairn that ends a copy posts a number to the loop's eventfd and never takes
the GIL; the loop reads the numbers."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any

from ._cairn import _Wakeups


class _LoopWakeups:
    """The eventfd of one loop. The loop watches it while something is awaited."""

    def __init__(self) -> None:
        self._wakeups = _Wakeups()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, copy: Any, loop: asyncio.AbstractEventLoop) -> None:
        number = next(self._numbers)
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.add_reader(self._wakeups.fileno(), self._take)
        self._waiting[number] = future
        try:
            if copy._watch(self._wakeups, number):
                await future
        except asyncio.CancelledError:
            copy.cancel()
            raise
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


async def wait(copy: Any) -> Any:
    """Waits until the copy has ended, without blocking the loop, and returns its outcome."""
    if not copy.done():
        loop = asyncio.get_running_loop()
        wakeups = _loops.get(loop)
        if wakeups is None:
            wakeups = _loops[loop] = _LoopWakeups()
        await wakeups.wait(copy, loop)
    return copy.result()
