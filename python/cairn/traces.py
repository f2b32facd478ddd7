"""Traces of requests in Mooncake's JSONL: reading files, plain or gzipped, writing them, and generating synthetic ones.

A row is one request: the ids of its prompt's blocks, its times and lengths.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

from ._cairn import TraceReader, TraceRow
from ._cairn import generate_trace as generate

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TraceReader", "TraceRow", "generate", "read", "write"]


def read(path: str | PathLike[str]) -> TraceReader:
    """Iterate over the rows of a trace file. Its memory does not grow with the file."""
    return TraceReader(fspath(path))


def write(path: str | PathLike[str], rows: Iterable[TraceRow]) -> int:
    """Write rows to a trace file, gzipped if its name ends in .gz. Returns how many."""
    import gzip
    import json

    count = 0
    opened = gzip.open(path, "wt") if fspath(path).endswith(".gz") else open(path, "w", encoding="utf-8")
    with opened as file:
        for row in rows:
            fields: dict[str, object] = {
                "timestamp": row.timestamp_ms,
                "input_length": row.input_tokens,
                "output_length": row.output_tokens,
            }
            if row.session:
                fields["session_id"] = row.session
            if row.delay_ms is not None:
                fields["delay"] = row.delay_ms
            fields["hash_ids"] = row.hash_ids
            file.write(json.dumps(fields) + "\n")
            count += 1
    return count
