"""A vLLM engine in this process, with or without Cairn, for the tests of this folder."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import time
from pathlib import Path
from typing import Any

MODELS = Path(os.environ.get("ENGINES_FOLDER", "build/engines")) / "vllm"
BLOCK = 32  # the smallest that vLLM's attention on CPUs takes


def prompt(tokens: int, seed: int = 0) -> list[int]:
    """Random tokens of the tiny models, without their special ones."""
    return [random.Random(seed + i).randrange(3, 1024) for i in range(0, 10_000_000, 10_000_000 // tokens)][:tokens]


class Engine:
    """One vllm.LLM. `extra`: kv_connector_extra_config; None for an engine without Cairn."""

    def __init__(
        self, extra: dict[str, Any] | None = None, *, model: str = "tiny", policy: str = "recompute", **options: Any
    ) -> None:
        from vllm import LLM
        from vllm.distributed import cleanup_dist_env_and_memory
        from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown

        ensure_kv_transfer_shutdown()  # of an engine that did not start
        cleanup_dist_env_and_memory()
        if extra is not None:
            extra = {"onboard.weigh": False, "host.pinning": "off", **extra}  # the tiny models compute faster than they load
            options["kv_transfer_config"] = {
                "kv_connector": "CairnConnector",
                "kv_connector_module_path": "cairn.vllm",
                "kv_role": "kv_both",
                "kv_load_failure_policy": policy,
                "kv_connector_extra_config": extra,
            }
        options = {"max_model_len": 2048, "block_size": BLOCK, "seed": 0, **options}
        self.llm = LLM(
            str(MODELS / model), skip_tokenizer_init=True, enforce_eager=True, disable_log_stats=False, **options
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core

    @property
    def connector(self) -> Any:
        """The scheduler's connector."""
        return self.core.scheduler.connector

    @property
    def worker(self) -> Any:
        """The connector of this process's worker."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group()

    def generate(self, prompts: list[list[int]], tokens: int = 12, salt: str | None = None, **sampling: Any) -> list[list[int]]:
        """Greedy tokens; also sets `cached`, the cached tokens of each prompt, and `reasons`, why each ended."""
        from vllm import SamplingParams

        inputs = [{"prompt_token_ids": each} | ({"cache_salt": salt} if salt else {}) for each in prompts]
        parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, **sampling)
        outputs = self.llm.generate(inputs, parameters, use_tqdm=False)
        self.cached = [output.num_cached_tokens or 0 for output in outputs]
        self.reasons = [output.outputs[0].finish_reason for output in outputs]
        return [list(output.outputs[0].token_ids) for output in outputs]

    def step(self) -> None:
        self.llm.llm_engine.step()

    def settle(self, limit: float = 60.0) -> None:
        """Steps until nothing is in flight any more: an engine in this process steps only when it is told to."""
        deadline = time.monotonic() + limit
        while self.core.scheduler.has_requests():
            assert time.monotonic() < deadline, "something is in flight forever"
            self.step()

    def forget(self) -> None:
        """Empties the engine's own prefix cache, so that the next request has to load."""
        self.settle()
        assert self.llm.reset_prefix_cache()

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        with contextlib.suppress(Exception):
            self.settle()
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        cleanup_dist_env_and_memory()
