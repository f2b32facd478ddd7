#!/usr/bin/env python3
"""record_vllm.py FILE: runs vLLM with Cairn and writes the calls that both sides get, for python/tests/test_vllm_recorded.py.

Tokens are left out: how many there are is all that counts. A digest is a number of its own.
"""

import json
import sys
from typing import Any

from engine import BLOCK, Engine, prompt


class Recorder:
    """Wraps the sides of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.calls: list[Any] = []
        self._numbers: dict[bytes, int] = {}
        self._lists: dict[str, tuple[list[int], list[bytes]]] = {}
        self._seen: dict[str, list[int]] = {}
        side, worker = engine.connector._scheduler, engine.worker._worker
        for name in ("add", "match", "allocated", "build", "finish"):
            setattr(side, name, self._wrap(name, getattr(side, name)))
        take = worker.take

        def taken() -> Any:
            result = take()
            self.calls.append(["taken", sorted(result.received), sorted(result.failed_blocks)])
            return result

        worker.take = taken

    def _news(self, request: str) -> list[Any]:
        """What the engine has appended to the lists of a request since the last time: how many tokens, and digests."""
        tokens, digests = self._lists[request]
        seen = self._seen.setdefault(request, [0, 0])
        more = [self._numbers.setdefault(digest, len(self._numbers)) for digest in digests[seen[1] :]]
        count = len(tokens) - seen[0]
        seen[:] = [len(tokens), len(digests)]
        return [count, more]

    def _wrap(self, name: str, call: Any) -> Any:
        def wrapped(request: Any, *rest: Any) -> Any:
            if name == "add":
                self._lists[request] = rest
                self.calls.append([name, request, self._news(request)])
                return call(request, *rest)
            if name == "build":
                arguments = [request, *rest[:3], sorted(rest[3]), sorted(rest[4])]
                arguments[3] = {each: rest[2][each] for each in request}
                news = {each: self._news(each) for each in request}
                self.calls.append([name, json.loads(json.dumps(arguments)), news])
                return call(request, *rest)
            result = call(request, *rest)
            self.calls.append([name, request, *json.loads(json.dumps(rest)), result])
            return result

        return wrapped


def scenario(extra: dict[str, Any], rounds: list[tuple[list[list[int]], int]], **options: Any) -> dict[str, Any]:
    with Engine({"host.size": "64MiB", **extra}, **options) as engine:
        recorder = Recorder(engine)
        for prompts, tokens in rounds:
            engine.generate(prompts, tokens=tokens)
            engine.forget()
        blocks = engine.connector._kv_cache_config.num_blocks
    mode = extra.get("load_mode", "async")
    return {"block_size": BLOCK, "blocks": min(blocks, 512), "load_mode": mode, "calls": recorder.calls}


def main() -> None:
    long, short = prompt(200, 1), prompt(70, 2)
    shared = [long[:96] + prompt(40, 5), long[:96] + prompt(50, 6)]
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    recorded = {
        "async": scenario({}, [([long, short], 4), ([long, short], 4), (shared, 4)]),
        "in_step": scenario({"load_mode": "in_step"}, [([long, short], 4), ([long, short], 4), (shared, 4)]),
        "chunks": scenario({}, [([long], 40), ([long], 3)], max_num_batched_tokens=64, max_num_seqs=4),
        "preemption": scenario({}, [([prompt(100, 10 + i) for i in range(4)], 70)], num_gpu_blocks_override=14, max_model_len=256),
        "no_prefix_caching": scenario({}, [([long], 3), ([long], 3)], enable_prefix_caching=False),
        # The last one: no engine starts after it in the same process.
        "speculation": scenario({}, [([prompt(40, 20) * 2], 40), ([prompt(40, 20) * 2], 40)], speculative_config=speculation),
    }
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump(recorded, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
