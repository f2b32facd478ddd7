"""Runs one SGLang engine for test_sglang_*.py: sglang_driver.py ARGUMENTS, in the Python of the installation.

ARGUMENTS are the engine's, as JSON. Commands are lines of JSON on stdin, answers lines that begin with "ANSWER " on stdout:

    {"generate": [[5, 6, 7], ...]}  the greedy tokens of each prompt, and how many tokens of it came from storage
    {"flush": true}                 forgets what device and host memory hold, so that only the storage has it
    {"stop": true}                  ends the engine
"""

import json
import sys


def main():
    import sglang

    fixed = {
        "device": "cpu",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        "skip_tokenizer_init": True,
        "max_total_tokens": 4096,
        "mem_fraction_static": 0.3,
        "hicache_ratio": 2.0,
        "hicache_io_backend": "direct",
        "hicache_storage_prefetch_policy": "wait_complete",
        "log_level": "info",
    }
    engine = sglang.Engine(**{**fixed, **json.loads(sys.argv[1])})
    print('ANSWER {"ready": true}', flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "generate" in command:
            answer = []
            for prompt in command["generate"]:
                result = engine.generate(
                    input_ids=prompt, sampling_params={"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True}
                )
                details = result["meta_info"].get("cached_tokens_details") or {}
                answer.append({"tokens": result["output_ids"], "storage": details.get("storage", 0)})
        elif "flush" in command:
            answer = {"flushed": engine.flush_cache().success}
        else:
            engine.shutdown()
            answer = {"stopped": True}
        print("ANSWER " + json.dumps(answer), flush=True)
        if "stop" in command:
            return


if __name__ == "__main__":
    main()
