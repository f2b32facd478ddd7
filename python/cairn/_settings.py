"""Settings as operators of engines write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
