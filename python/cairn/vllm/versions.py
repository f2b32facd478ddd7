"""Which versions of vLLM the connector supports, and the module for each."""

from __future__ import annotations

import re

# From the first version on, up to the second without it; versions were run with tests/engines/vllm before they got here.
SUPPORTED: list[tuple[tuple[int, int], tuple[int, int], str]] = [
    ((0, 32), (0, 33), "cairn.vllm.v0_32"),
]


def installed_version() -> str:
    """The version of the vLLM of this environment."""
    import vllm

    return str(vllm.__version__)


def supported() -> str:
    """The supported versions, for people."""
    names = []
    for (major, minor), end, _ in SUPPORTED:
        name = f"{major}.{minor}"
        names.append(name if (major, minor + 1) == end else f"{name} to before {end[0]}.{end[1]}")
    return ", ".join(names)


def adapter_of(version: str) -> str:
    """The module for a version of vLLM. Raises ImportError, whose message is one line for the operator."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None:
        key = (int(numbers[1]), int(numbers[2]))
        for first, end, module in SUPPORTED:
            if first <= key < end:
                return module
    raise ImportError(
        f"Cairn does not support vLLM {version}; supported: {supported()}. Install one of these, or another Cairn"
    )
