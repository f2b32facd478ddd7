"""Cairn as a KV connector of vLLM. docs/vllm.md explains it.

    --kv-transfer-config '{"kv_connector": "CairnConnector", "kv_connector_module_path": "cairn.vllm", "kv_role": "kv_both"}'

One module for each range of vLLM's versions holds all that touches vLLM (versions.py lists them); it is imported when
`CairnConnector` is first asked for. The other modules know nothing of vLLM.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["CairnConnector"]


def __getattr__(name: str) -> Any:
    if name != "CairnConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .versions import adapter_of, installed_version

    connector = importlib.import_module(adapter_of(installed_version())).CairnConnector
    globals()[name] = connector
    return connector
