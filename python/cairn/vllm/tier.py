"""Cairn as a secondary tier below vLLM's own host tier. docs/vllm.md explains it.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
      "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 68719476736,
      "secondary_tiers": [{"type": "CairnTier", "module_path": "cairn.vllm.tier", "disk.path": "/nvme/kv", "disk.size": "1TB"}]}}'

As in cairn.vllm, one module for each range of vLLM's versions holds all that touches vLLM.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["CairnTier"]


def __getattr__(name: str) -> Any:
    if name != "CairnTier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .versions import adapter_of, installed_version

    tier = importlib.import_module(adapter_of(installed_version()) + "_tier").CairnTier
    globals()[name] = tier
    return tier
