"""A plug-in of pytest: vLLM's own suites of KV connectors, with CairnConnector as the connector.

The suites put a mock in the place of the scheduler's connector and say what it answers. Here that mock is in front of a real
CairnConnector, which gets every call, and which has stored the prompts of which the suites say so: its own answers have to be those
that the suites expect. A worker with a KV cache of its own takes part in every step.
"""

from __future__ import annotations

import os
import time
from typing import Any
from unittest.mock import DEFAULT, Mock, patch

import pytest
import torch

_FORWARDED = (
    "on_new_request",
    "update_state_after_alloc",
    "update_connector_output",
    "get_external_cache_hit_sources",
    "get_kv_connector_stats",
    "has_pending_push_work",
    "has_pending_block_frees",
    "shutdown",
)
_LIMIT = 60.0


class Cairn:
    """The connector of a scheduler that a suite has made, and its worker."""

    last: Cairn | None = None

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.connector = scheduler.connector
        self.worker: Any = None
        self.kv: Any = None  # the worker's KV cache
        self.is_async = True
        Cairn.last = self

    def open(self, is_async: bool) -> None:
        """Opens the cache, which a suite's engine does not do: it has no workers."""
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole

        self.is_async = is_async
        cache, config = self.scheduler.kv_cache_config, self.scheduler.vllm_config
        config.kv_transfer_config.kv_connector_extra_config["load_mode"] = "async" if is_async else "in_step"
        self.connector._settings.load_mode = "async" if is_async else "in_step"
        self.worker = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
        spec = cache.kv_cache_groups[0].kv_cache_spec
        self.kv = torch.zeros(cache.num_blocks, spec.num_kv_heads, spec.block_size, 2 * spec.head_size, dtype=spec.dtype)
        self.worker.register_kv_caches({"layer": self.kv})
        with patch("cairn.vllm.v0_32.get_tensor_model_parallel_rank", return_value=0):
            handshake = self.worker.get_handshake_metadata()
        self.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): handshake})
        assert self.connector._scheduler is not None
        for request in self.scheduler.requests.values():  # that came before
            self.connector.on_new_request(request)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.shutdown()
        self.connector.shutdown()

    def store(self, request: Any, tokens: int) -> None:
        """Makes Cairn hold the first tokens of a request, as if one with the same prompt had run before."""
        side, worker = self.connector._scheduler, self.worker._worker
        name, count = f"{request.request_id}-before", tokens // self.scheduler.block_size
        blocks = list(range(self.scheduler.kv_cache_config.num_blocks - count, self.scheduler.kv_cache_config.num_blocks))
        side.add(name, list(request.all_token_ids[:tokens]), list(request.block_hashes[:count]))
        side.match(name, 0)
        self.step(side.build([name], [0], [(blocks,)], {name: tokens}, {name}))
        if side.finish(name, tokens):
            deadline = time.monotonic() + _LIMIT
            while name not in worker.take().sent:
                assert time.monotonic() < deadline, f"{name} is not saved"
                self.step(side.build([], [], [], {}))

    def step(self, step: Any) -> None:
        """The worker's part of a step."""
        worker = self.worker._worker
        worker.bind(step)
        worker.start_load()
        worker.save_layer("layer", lambda: None)
        worker.save_step()

    def match(self, request: Any, computed: int, tokens: int) -> tuple[int, bool]:
        if tokens:
            self.store(request, computed + tokens)
        answer = self.connector.get_num_new_matched_tokens(request, computed)
        assert answer[0] == tokens and (tokens == 0 or answer[1] == self.is_async), answer
        return answer

    def build(self, output: Any) -> Any:
        metadata = self.connector.build_connector_meta(output)
        if metadata.step is not None:
            self.step(metadata.step)
            self.worker._worker.take()
        return metadata


def mock_connector() -> Mock:
    """What the suites call in the place of create_mock_connector()."""
    cairn = Cairn.last
    assert cairn is not None
    mock = Mock()
    for name in _FORWARDED:
        getattr(mock, name).side_effect = getattr(cairn.connector, name)
    mock.build_connector_meta.side_effect = cairn.build

    def finished(request: Any, blocks: list[int]) -> Any:
        cairn.connector.request_finished(request, blocks)
        return DEFAULT  # what the suite says

    mock.request_finished.side_effect = finished
    mock.request_finished.return_value = (False, None)
    return mock


def matched_tokens(tokens_of: dict[str, int], async_load: bool) -> Any:
    """What the suites call in the place of _make_get_num_new_matched_tokens()."""
    cairn = Cairn.last
    assert cairn is not None
    cairn.open(async_load)
    return lambda request, computed: cairn.match(request, computed, tokens_of.get(request.request_id, 0))


def pytest_configure() -> None:
    """Before the suites import their helpers."""
    import tests.v1.core.utils as core
    import tests.v1.kv_connector.unit.utils as helpers
    from vllm.distributed.kv_transfer.kv_connector.v1 import example_connector

    from cairn.vllm import CairnConnector
    from cairn.vllm.v0_32 import CairnMetadata

    config, scheduler = helpers.create_vllm_config, helpers.create_scheduler
    extra = {"host.blocks": 1024, "host.pinning": "off", "onboard.weigh": False}

    def cairn_config(**given: Any) -> Any:
        ours = {"kv_connector": "CairnConnector", "kv_connector_module_path": "cairn.vllm", "kv_role": "kv_both"}
        settings = given if "kv_connector" in given else ours | given
        settings["kv_connector_extra_config"] = extra | settings.get("kv_connector_extra_config", {})
        return config(model=os.environ["SUITES_MODEL"], max_model_len=2048, **settings)

    def cairn_scheduler(*given: Any, **more: Any) -> Any:
        made = scheduler(*given, **more)
        Cairn(made)
        return made

    core_scheduler = core.create_scheduler
    core.create_scheduler = lambda **given: core_scheduler(model=os.environ["SUITES_MODEL"], **given)
    helpers.create_vllm_config = cairn_config
    helpers.create_scheduler = cairn_scheduler
    helpers.create_mock_connector = mock_connector
    # The suite of the worker's life records the calls of this connector.
    helpers.ExampleConnector = lambda config, role, cache: CairnConnector(strip(config), role, cache)
    example_connector.ExampleConnectorMetadata = lambda: CairnMetadata(None)


def strip(config: Any) -> Any:
    """Without the key that the recording connector of the suites reads."""
    config.kv_transfer_config.kv_connector_extra_config.pop("name", None)
    return config


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for module in {item.module for item in items}:  # type: ignore[attr-defined]
        if hasattr(module, "_make_get_num_new_matched_tokens"):
            module._make_get_num_new_matched_tokens = matched_tokens


@pytest.fixture(autouse=True)
def _close_cairn() -> Any:
    Cairn.last = None
    yield
    if Cairn.last is not None:
        Cairn.last.close()
