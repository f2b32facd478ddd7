"""Pages of one process's tiers for other processes of the same engine, which have the same pages: a server and its clients.

A client gives the server a piece of shared memory. The server copies pages into it, verified, and the client takes them from there.
The socket lies in a folder that only this user can write to; nothing else is proven.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_log = logging.getLogger(__name__)

_SHARED_BYTES = 64 << 20  # of a client, or one page
_LARGEST_MESSAGE = 64 << 20
Addresses = npt.NDArray[np.uint64]


class PageSource:
    """What a server has: pages of one kind, by their hashes."""

    def __init__(
        self,
        page_bytes: int,
        exists: Callable[[Sequence[str]], list[bool]],
        fetch: Callable[[Sequence[str], Addresses, Addresses, float], list[bool]],
    ) -> None:
        self.page_bytes = page_bytes
        self.exists = exists
        self.fetch = fetch  # hashes, addresses and sizes of the pages, seconds


def _send(connection: socket.socket, message: Any) -> None:
    text = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(text)) + text)


def _receive(connection: socket.socket) -> Any:
    """The next message; None at the end of the connection."""
    (length,) = struct.unpack("<I", _exactly(connection, 4) or b"\0\0\0\0")
    if length > _LARGEST_MESSAGE:
        raise ValueError(f"a message of {length} bytes")
    text = _exactly(connection, length)
    return json.loads(text) if text else None


def _exactly(connection: socket.socket, length: int) -> bytes:
    """So many bytes; none if the connection ends before."""
    received = bytearray()
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            return b""
        received += part
    return bytes(received)


class PageServer:
    """Serves the sources, by name, at a path until close(). Sources may be added later."""

    def __init__(self, path: str, sources: dict[str, PageSource]) -> None:
        self._path = path
        self._sources = sources
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a process that was killed; the lock of the file says that there is no other
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, name="cairn-pages", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="cairn-pages", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("cairn: a rank that shares pages is gone: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _answer(self, connection: socket.socket) -> None:
        _, files, _, _ = socket.recv_fds(connection, 1, 1)
        if len(files) != 1:
            return
        try:
            size = os.fstat(files[0]).st_size
            with mmap.mmap(files[0], size) as shared:
                holder = (ctypes.c_char * size).from_buffer(shared)
                try:
                    self._copy(connection, ctypes.addressof(holder), size)
                finally:
                    del holder
        finally:
            os.close(files[0])

    def _copy(self, connection: socket.socket, address: int, size: int) -> None:
        while (asked := _receive(connection)) is not None:
            source = self._sources.get(asked["pool"])
            hashes = asked["hashes"]
            fits = source is not None and source.page_bytes == asked["page_bytes"]
            if source is None or not fits or (asked["kind"] == "get" and len(hashes) * source.page_bytes > size):
                answer = [False] * len(hashes)
            elif asked["kind"] == "exists":
                answer = source.exists(hashes)
            else:
                addresses = np.uint64(address) + np.arange(len(hashes), dtype=np.uint64) * np.uint64(source.page_bytes)
                sizes = np.full(len(hashes), source.page_bytes, dtype=np.uint64)
                answer = source.fetch(hashes, addresses, sizes, float(asked["seconds"]))
            _send(connection, answer)


class PageClient:
    """Asks the server at a path. Any thread may call; one call at a time is made. If the server is not there or late, every
    page is a miss."""

    def __init__(self, path: str, pool: str, page_bytes: int) -> None:
        self._path = path
        self._pool = pool
        self._page_bytes = page_bytes
        self._pages = max(1, _SHARED_BYTES // page_bytes)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._shared: mmap.mmap | None = None

    def exists(self, hashes: Sequence[str], seconds: float) -> list[bool]:
        """Whether the server has each of the pages."""
        with self._lock:
            return self._ask("exists", hashes, time.monotonic() + seconds)

    def fetch(self, hashes: Sequence[str], parts: Addresses, sizes: Addresses, seconds: float) -> list[bool]:
        """Copies pages to `parts`, as many for each page; False for a page that must not be used."""
        deadline = time.monotonic() + seconds
        each = len(parts) // len(hashes)
        done: list[bool] = []
        with self._lock:
            for first in range(0, len(hashes), self._pages):
                some = hashes[first : first + self._pages]
                answer = self._ask("get", some, deadline)
                for i, there in enumerate(answer):
                    if there:
                        self._take(i, parts[(first + i) * each :][:each], sizes[(first + i) * each :][:each])
                done += answer
        return done

    def _take(self, row: int, parts: Addresses, sizes: Addresses) -> None:
        assert self._shared is not None
        at = row * self._page_bytes
        for address, size in zip(parts.tolist(), sizes.tolist(), strict=True):
            ctypes.memmove(address, self._shared[at : at + size], size)
            at += size

    def _ask(self, kind: str, hashes: Sequence[str], deadline: float) -> list[bool]:
        seconds = deadline - time.monotonic()
        answer: Any = None
        if seconds > 0:
            try:
                connection = self._connected()
                connection.settimeout(seconds)
                asked = {"kind": kind, "pool": self._pool, "page_bytes": self._page_bytes, "seconds": seconds}
                _send(connection, {**asked, "hashes": list(hashes)})
                answer = _receive(connection)
            except (OSError, ValueError) as error:
                _log.debug("cairn: rank 0 does not answer: %s", error)
        if not isinstance(answer, list) or len(answer) != len(hashes):
            self._drop()  # with its memory: an answer that is late may still be written to it
            return [False] * len(hashes)
        return [each is True for each in answer]

    def _connected(self) -> socket.socket:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._path)
                size = self._pages * self._page_bytes
                file = os.memfd_create("cairn-pages")
                try:
                    os.ftruncate(file, size)
                    self._shared = mmap.mmap(file, size)
                    socket.send_fds(connection, [b"\0"], [file])
                finally:
                    os.close(file)
            except OSError:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._shared = None

    def close(self) -> None:
        with self._lock:
            self._drop()
