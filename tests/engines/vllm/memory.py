"""Finds and changes bytes of this process, to damage what Cairn keeps in host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path


def _writable() -> Iterator[tuple[int, int]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, _, *_ = line.split()
        if access.startswith("rw"):
            begin, end = (int(address, 16) for address in span.split("-"))
            yield begin, end


def find(pattern: bytes, skip: range) -> list[int]:
    """Addresses of the bytes, page-aligned as tiers keep blocks at least to 64 bytes, except inside `skip`."""
    found = []
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for begin, end in _writable():
            if begin >= skip.start and end <= skip.stop or end - begin > 1 << 31:
                continue
            for at in range(begin, end, 64 << 20):
                size = min((64 << 20) + len(pattern), end - at)
                memory.seek(at)
                try:
                    chunk = memory.read(size)
                except OSError:
                    break
                place = chunk.find(pattern)
                while place >= 0:
                    if (at + place) % 64 == 0 and not skip.start <= at + place < skip.stop:
                        found.append(at + place)
                    place = chunk.find(pattern, place + 1)
                del chunk
    return sorted(set(found))


def flip(address: int) -> None:
    ctypes.c_uint8.from_address(address).value ^= 0x10


def zero(address: int, size: int) -> None:
    ctypes.memset(address, 0, size)
