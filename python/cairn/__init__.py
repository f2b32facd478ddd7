"""Cairn: a KV-cache block manager for LLM inference. docs/python.md explains the package."""

from ._cairn import (
    AlreadyExistsError,
    CancelledError,
    CorruptError,
    Error,
    ExhaustedError,
    ExpiredError,
    FailedPreconditionError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OutOfRangeError,
    UnavailableError,
    __version__,
)
