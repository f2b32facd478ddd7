"""A plug-in of pytest: engines have vLLM's second model runner, the default on GPUs, which needs Triton.

Triton has no compiler for CPUs; its interpreter runs the runner's kernels there, on numpy. vLLM asks for a driver of a CPU, so there is one.
Has to be loaded before anything imports Triton or vLLM.
"""

import os
import types

import pytest

os.environ.update(VLLM_USE_V2_MODEL_RUNNER="1", TRITON_INTERPRET="1", TRITON_BACKENDS_IN_TREE="1")

import triton.backends  # noqa: E402

triton.backends.backends["cpu"] = types.SimpleNamespace(driver=types.SimpleNamespace(is_active=lambda: True))


@pytest.fixture(scope="session", autouse=True)
def _second_runner():
    """That the tests run what they say."""
    from vllm.v1.worker import cpu_worker
    from vllm.v1.worker.cpu.model_runner import CPUModelRunner

    made = []
    with pytest.MonkeyPatch.context() as patch:
        init = CPUModelRunner.__init__
        patch.setattr(CPUModelRunner, "__init__", lambda self, *given: (made.append(1), init(self, *given))[1])

        def first(*given):
            raise AssertionError("an engine has the first model runner")

        patch.setattr(cpu_worker, "CPUModelRunner", first)
        yield
    assert made
