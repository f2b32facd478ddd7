"""Copies between rows of an engine's host memory and Cairn's tiers, on threads of their own. Knows nothing of vLLM."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import cairn

from .._page_store import IncidentLogger

logger = logging.getLogger("vllm.cairn")

_LOADERS = 4
_STORERS = 2


@dataclass(frozen=True)
class Finished:
    """A job that has ended."""

    job: int
    is_load: bool
    names: tuple[bytes, ...]
    done: list[bool]  # of each name: its bytes are where the job was to bring them
    seconds: float


class ChunkStore:
    """Chunks, each a row of one block of memory, under the names that the engine gives them.

    The memory stays the engine's: `address` is that of row 0, and rows follow each other. Nothing touches it after close().
    One thread calls.
    """

    def __init__(self, manager: cairn.Manager, address: int, row_bytes: int) -> None:
        self.manager = manager
        self._hasher = manager.hasher
        self._address = address
        self._row_bytes = row_bytes
        self._incidents = IncidentLogger(logger)
        self._loaders = ThreadPoolExecutor(_LOADERS, thread_name_prefix="cairn-load")
        self._storers = ThreadPoolExecutor(_STORERS, thread_name_prefix="cairn-store")
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self._finished: deque[Finished] = deque()

    def has(self, name: bytes) -> bool:
        """Whether a tier has the chunk. Answered from memory."""
        return self.manager.locate(self._keys((name,))).blocks == 1

    def load(self, job: int, names: Iterable[bytes], rows: npt.NDArray[np.int32]) -> None:
        """Starts to copy chunks into rows; finished() has the outcome."""
        self._start(self._loaders, job, True, tuple(names), rows)

    def store(self, job: int, names: Iterable[bytes], rows: npt.NDArray[np.int32]) -> None:
        """Starts to copy rows into the tiers; finished() has the outcome."""
        self._start(self._storers, job, False, tuple(names), rows)

    def finished(self) -> list[Finished]:
        """The jobs that have ended since the last call."""
        taken = []
        while self._finished:
            taken.append(self._finished.popleft())
        return taken

    def drain(self) -> None:
        """Waits until every job has ended. Each has a deadline."""
        with self._lock:
            running = list(self._running)
        wait(running)

    def close(self) -> None:
        """Waits for jobs that run, and closes the tiers. Jobs that wait for a thread still run: each has a deadline."""
        self._loaders.shutdown()
        self._storers.shutdown()
        self.manager.close()

    def _keys(self, names: Collection[bytes]) -> cairn.Keys:
        # A name has the whole digest of a block and the number of its group: more than a key takes.
        return cairn.vllm_page_keys(self._hasher, [hashlib.sha256(name).digest() for name in names])

    def _start(
        self, threads: ThreadPoolExecutor, job: int, is_load: bool, names: tuple[bytes, ...], rows: npt.NDArray[np.int32]
    ) -> None:
        addresses = np.uint64(self._address) + rows.astype(np.uint64) * np.uint64(self._row_bytes)
        future = threads.submit(self._run, job, is_load, names, addresses)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _run(self, job: int, is_load: bool, names: tuple[bytes, ...], addresses: npt.NDArray[np.uint64]) -> None:
        began = time.perf_counter()
        copy = self.manager.fetch_pages if is_load else self.manager.store_pages
        try:
            done = copy(self._keys(names), addresses, np.full(len(names), self._row_bytes, dtype=np.uint64))
        except Exception as error:  # noqa: BLE001  the engine waits for every job that it began
            logger.warning("cairn: %s of %d chunks failed: %s", "load" if is_load else "store", len(names), error)
            done = [False] * len(names)
        self._finished.append(Finished(job, is_load, names, done, time.perf_counter() - began))
        if not all(done):
            self._incidents.look({"chunks": self.manager})
