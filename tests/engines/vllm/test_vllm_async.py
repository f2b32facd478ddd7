"""Tests of test_vllm.py with asynchronous scheduling: each step is scheduled before the last one has ended.

vLLM turns it off on CPUs, where it gains nothing, but it works there. On GPUs it is the default.
"""

import pytest
from engine import Engine
from test_vllm import (  # noqa: F401  they run here again
    HOST,
    test_aborts_in_every_state,
    test_chunked_prefill,
    test_damage_in_host_memory_never_reaches_a_token,
    test_preemption,
    test_random_prompts_with_faults,
    test_warm_tokens_are_the_same,
    test_without_prefix_caching,
)
from vllm.platforms.cpu import CpuPlatform


@pytest.fixture(autouse=True)
def _asynchronous(monkeypatch):
    settle = CpuPlatform.check_and_update_config

    def turned_on(config):
        settle(config)
        config.scheduler_config.async_scheduling = True

    monkeypatch.setattr(CpuPlatform, "check_and_update_config", staticmethod(turned_on))


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_in_step_loads_are_for_the_policy_that_vllm_gets_right(policy):
    """With `recompute`, vLLM crashes when a load fails whose step it has scheduled another one after."""
    with Engine({**HOST, "load_mode": "in_step"}, policy=policy) as engine:
        assert type(engine.core.scheduler).__name__ == "AsyncScheduler"
        assert engine.core.batch_queue_size == 2
        mode = "async" if policy == "recompute" else "in_step"
        assert engine.connector._settings.load_mode == engine.worker._settings.load_mode == mode
