"""The scheduler's side: an engine's calls, in plain values, on cairn.Scheduler.

No error of Cairn reaches the engine: a request that Cairn cannot follow goes on without a cache, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import cairn

from .events import EventTranslator
from .steps import Step

logger = logging.getLogger("vllm.cairn")


class SchedulerSide:
    """One engine's requests. The engine's scheduler thread makes all calls."""

    def __init__(self, scheduler: cairn.Scheduler, block_size: int, *, in_step: bool = False, events: bool = False) -> None:
        self.scheduler = scheduler
        self.events = EventTranslator(scheduler.manager) if events else None
        self._block_size = block_size
        self._requests = cairn.EngineRequests(scheduler)
        self._in_step = in_step
        self._number = 0
        self._matched: dict[str, tuple[int, int, int]] = {}  # the engine's own tokens, those to load, of those on disk
        self._loading: dict[str, list[int]] = {}  # requests that wait for a load: the blocks that it fills
        self._handles: dict[int, str] = {}  # of those
        self._awaited: set[str] = set()  # requests that wait for a load, and the engine has not heard of its end
        self._freed_by_load: set[str] = set()  # finished meanwhile: the engine frees their blocks when it hears of it
        self._in_step_loads = False  # since the last step was built
        self._failed: list[tuple[str, list[int]]] = []
        self._released: list[str] = []
        self.short_loads = 0  # that did not bring all of their tokens

    def close(self) -> None:
        self.scheduler.close()

    # --- requests ---

    def add(self, request: str, tokens: list[int], digests: list[bytes]) -> None:
        """A new request. The lists are the engine's own, which it appends to."""
        try:
            self._requests.add(request, tokens, digests)
        except cairn.Error as error:
            logger.warning("Cairn: request %s goes on without a cache: %s", request, error)
            return
        if self.events is not None:
            self.events.watch(request, digests)

    def match(self, request: str, local_tokens: int) -> tuple[int | None, bool]:
        """How many tokens can be loaded beyond those that the engine has, and whether the request has to wait for them.
        None: ask in the next step."""
        if request not in self._requests:
            return 0, False
        self.take_outcomes()
        try:
            match = self._requests.match(request, local_tokens)
        except cairn.Error as error:
            logger.warning("Cairn: nothing is loaded for request %s: %s", request, error)
            return 0, False
        self._matched[request] = (local_tokens, match.tokens, match.disk_tokens)
        if match.when == "ask_again":
            return None, False
        return match.tokens, match.when == "later"

    def sources(self, request: str, tokens: int) -> tuple[int, int]:
        """How many of the tokens that are loaded come from host memory, and how many from disk."""
        on_disk = min(self._matched[request][2], tokens)
        return tokens - on_disk, on_disk

    def allocated(self, request: str, blocks: list[int], loaded_tokens: int) -> None:
        """The engine gave the request blocks, from its first token on, and loads so many tokens of what match() said."""
        local_tokens = self._matched[request][0]
        if not self._in_step:
            self._awaited.add(request)
        first = local_tokens // self._block_size
        loaded = blocks[first : first + loaded_tokens // self._block_size]
        try:
            self._requests.allocated(request, blocks, local_tokens=local_tokens, loaded_tokens=loaded_tokens)
        except cairn.Error as error:
            logger.error("Cairn: the load of request %s was refused: %s", request, error)
            self._failed.append((request, loaded))
            return
        self._loading[request] = loaded
        self._handles[self._requests.handle(request)] = request
        self._in_step_loads = self._in_step

    def finish(self, request: str, computed_tokens: int | None, ending: str = "unknown") -> bool:
        """The request ended, as `ending` says. True: its blocks must not change until a step reports it as released."""
        self._matched.pop(request, None)
        if request not in self._requests:
            return False
        self.take_outcomes()
        try:
            held = self._requests.finish(request, computed_tokens, ending)
        except cairn.Error as error:
            logger.error("Cairn: request %s could not be finished: %s", request, error)
            return False
        if held and request in self._awaited:
            self._freed_by_load.add(request)
        if not held and self.events is not None:
            self.events.forget(request)
        return held

    def received(self, requests: Collection[str]) -> None:
        """The engine has heard that the loads of these requests have ended."""
        self._awaited.difference_update(requests)
        self.take_outcomes()

    # --- steps ---

    def build(
        self,
        requests: list[str],
        computed_tokens: list[int],
        new_blocks: list[Any],
        scheduled_tokens: dict[str, int],
        whole: Collection[str] = (),
        preempted: Collection[str] = (),
    ) -> Step:
        """The metadata of a step; docs/connector.md has the arguments."""
        self.take_outcomes()
        self._number += 1
        try:
            native, refused = self._requests.build(
                self._number, requests, computed_tokens, new_blocks, scheduled_tokens, whole, preempted
            )
        except cairn.Error as error:
            logger.error("Cairn: the requests of step %d go on without a cache: %s", self._number, error)
            # Metadata that cannot be read: workers give up every save that may still read a block that this step writes.
            native, refused = b"", [(request, str(error)) for request in list(self._loading)]
        for request, reason in refused:
            logger.debug("Cairn: request %s: %s", request, reason)
            blocks = self._loading.pop(request, None)
            if blocks is not None:
                self._handles = {handle: name for handle, name in self._handles.items() if name != request}
                self._failed.append((request, blocks))
        step = Step(native, self._in_step_loads, self._released, self._failed)
        self._in_step_loads = False
        self._released = []
        self._failed = []
        return step

    def take_outcomes(self) -> None:
        """What has ended since the last call. Before a request whose load has ended is scheduled."""
        outcomes = self.scheduler.take_outcomes()
        for loaded in outcomes.loaded:
            request = self._handles.pop(loaded.request, None)
            if request is not None:
                self._loading.pop(request, None)
            if loaded.missing:
                self.short_loads += 1
                logger.warning("Cairn: %d tokens of request %s were not loaded", loaded.missing, request)
        for name in outcomes.released:
            request = str(name)
            if self.events is not None:
                self.events.forget(request)
            if request in self._freed_by_load:
                self._freed_by_load.discard(request)
            else:
                self._released.append(request)
            if request in self._loading:
                del self._loading[request]
                self._handles = {handle: name for handle, name in self._handles.items() if name != request}

    def has_work(self) -> bool:
        """Whether the engine should go on with steps, even with nothing to compute."""
        return bool(self._released or self._failed) or self.scheduler.has_work()

    def reset(self) -> None:
        """Nothing that was saved before is found afterwards."""
        self.scheduler.reset()
