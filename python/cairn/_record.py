"""Record: a dict whose keys are attributes too, for status and reports."""

from __future__ import annotations

from typing import Any


class Record(dict[str, Any]):
    """A dict whose keys are attributes too: status.tiers[0].blocks is status["tiers"][0]["blocks"]."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r} here; there are {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists, for JSON."""
        return _plain(self)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def record(value: Any) -> Any:
    if isinstance(value, dict):
        return Record({name: record(each) for name, each in value.items()})
    if isinstance(value, list):
        return [record(each) for each in value]
    return value
