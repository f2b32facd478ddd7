"""The worker's side: an engine's calls, in plain values, on cairn.Worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import cairn

from .steps import Step, Taken

logger = logging.getLogger("vllm.cairn")

_BIND_LIMIT = 60.0  # seconds that a step waits for copies of a scheduler that was replaced


class WorkerSide:
    """One rank: its steps. `connect` makes the cairn.Worker; it waits for the leader, so it runs on a thread of its own."""

    def __init__(self, connect: Callable[[], cairn.Worker], layers: dict[str, str], *, in_step: bool = False) -> None:
        self._in_step = in_step
        self._layer_names = layers
        self._layers: dict[str, int] = {}
        self._worker: cairn.Worker | None = None
        self._connect = connect
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._join_leader, name="cairn-connect", daemon=True)
        self._thread.start()
        self._step: Step | None = None
        self._is_bound = False  # the step is bound to the worker
        self._is_saved = False  # save_step() was called in it
        self._was_taken_early = False  # take() came before save_step()
        self._later = Taken()  # for the next take()

    def _join_leader(self) -> None:
        try:
            self._worker = self._connect()
        except Exception as error:  # noqa: BLE001  it is raised on the engine's thread
            self._error = error

    def close(self) -> None:
        self._thread.join()
        if self._worker is not None:
            self._worker.close()

    def _joined(self) -> cairn.Worker | None:
        if self._worker is None:
            self._thread.join()
            if self._error is not None:
                logger.error("Cairn: this worker runs without a cache: %s", self._error)
                self._error = None
        return self._worker

    # --- a step ---

    def bind(self, step: Step) -> None:
        """Begins a step, before anything of it is computed: waits for saves of blocks that the step overwrites."""
        if step is self._step:
            return
        self._step = step
        self._is_bound = self._is_saved = self._was_taken_early = False
        worker = self._joined()
        if worker is None:
            return
        limit = time.monotonic() + _BIND_LIMIT
        while True:
            try:
                worker.bind(step.native)
                self._is_bound = True
                return
            except cairn.UnavailableError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.001)
            except cairn.Error as error:
                logger.error("Cairn: a step goes on without a cache: %s", error)
                return

    def start_load(self, event: Any = None) -> None:
        """Loads may write to their blocks once `event` has ended."""
        if self._is_bound and self._worker is not None:
            self._worker.start_load(event)

    def wait_for_layer(self, name: str) -> None:
        """Waits for the loads of this step, if they arrive layer by layer."""
        step = self._step
        if step is None or not step.loads_in_step or not self._is_bound or self._worker is None:
            return
        try:
            self._worker.wait_for_layer(self._number(name))
        except cairn.Error as error:
            logger.warning("Cairn: layer %s was not loaded: %s", name, error)  # take() has the blocks

    def save_layer(self, name: str, event: Callable[[], Any]) -> None:
        """The layer is computed once the event has ended. With async loads save_step() says it of all layers."""
        if not self._in_step or not self._is_bound or self._is_saved or self._worker is None:
            return
        try:
            self._worker.save_layer(self._number(name), event())
        except cairn.FailedPreconditionError:
            pass  # a layer that runs several times in a step is saved the first time

    def save_step(self, event: Any = None) -> None:
        """Everything that the step computes is computed once `event` has ended."""
        if not self._is_bound or self._is_saved or self._worker is None:
            return
        self._is_saved = True
        if self._was_taken_early and self._step is not None and self._step.loads_in_step:
            return  # its outcomes had to be taken before: the next step says that it is computed
        self._worker.save_step(event)
        if self._was_taken_early:
            self._merge(self._worker.take_outcomes(), self._later)

    def take(self) -> Taken:
        """What has ended. The engine may call it before save_step(): then saves are settled in the next step."""
        taken, self._later = self._later, Taken()
        step = self._step
        if step is None:
            return taken
        taken.sent.update(step.released)
        for request, blocks in step.failed:
            taken.failed_blocks.update(blocks)
            if not self._in_step:
                taken.received.add(request)
        if self._is_bound and self._worker is not None:
            if self._is_saved or step.loads_in_step:
                self._merge(self._worker.take_outcomes(), taken)
            self._was_taken_early = not self._is_saved
        return taken

    def _merge(self, outcomes: cairn.WorkerOutcomes, taken: Taken) -> None:
        taken.failed_blocks.update(outcomes.failed_blocks)
        if not self._in_step:
            taken.received.update(str(request) for request, _ in outcomes.loaded)

    def _number(self, name: str) -> int:
        number = self._layers.get(name)
        if number is None:
            assert self._worker is not None
            number = self._worker.layer(self._layer_names[name])
            assert number is not None, name
            self._layers[name] = number
        return number
