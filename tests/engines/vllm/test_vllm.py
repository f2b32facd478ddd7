"""vLLM on CPUs with Cairn: the tokens are those of an engine without it, whatever happens."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory
import pytest
from conftest import PROMPTS
from engine import BLOCK, Engine, prompt

HOST = {"host.size": "64MiB"}
CACHED = [(len(each) - 1) // BLOCK * BLOCK for each in PROMPTS]  # what a warm engine does not compute


def check_warm(engine, reference, **generate):
    """Cold and warm tokens are the reference's, and the warm ones were loaded."""
    assert engine.generate(PROMPTS, **generate) == reference
    engine.forget()
    assert engine.generate(PROMPTS, **generate) == reference
    assert engine.cached == CACHED
    assert loaded(engine) == sum(CACHED)


def counts(engine):
    return engine.connector._scheduler.scheduler.counts().total


def loaded(engine):
    return counts(engine).loaded_host + counts(engine).loaded_disk


def device_block(engine, request_block=0):
    """The bytes of a page of layer 0, by block id."""
    tensor = next(iter(engine.worker._pages.group.tensors))
    page = tensor.shape[1] * tensor.shape[3]
    return ctypes.string_at(tensor.data_ptr() + request_block * tensor.stride()[0], page)


def kv_range(engine):
    tensors = engine.worker._pages.group.tensors
    first = min(tensor.data_ptr() for tensor in tensors)
    last = max(tensor.data_ptr() + tensor.shape[0] * tensor.stride()[0] for tensor in tensors)
    return range(first, last)


@pytest.mark.parametrize("mode", ["async", "in_step"])
def test_warm_tokens_are_the_same(mode, reference):
    with Engine({**HOST, "load_mode": mode}) as engine:
        check_warm(engine, reference)


@pytest.mark.parametrize("mode", ["async", "in_step"])
def test_chunked_prefill(mode, reference):
    with Engine({**HOST, "load_mode": mode}, max_num_batched_tokens=96, max_num_seqs=4) as engine:
        check_warm(engine, reference)


def test_without_prefix_caching(reference):
    with Engine(HOST, enable_prefix_caching=False) as engine:
        assert engine.generate(PROMPTS) == reference
        engine.settle()
        assert engine.generate(PROMPTS) == reference
        assert loaded(engine) == sum(CACHED)


@pytest.mark.parametrize("mode", ["async", "in_step"])
def test_preemption(mode):
    """40 blocks for four requests that grow: some are preempted, and come back from the host tier."""
    prompts = [prompt(200, 10 + i) for i in range(4)]
    with Engine(num_gpu_blocks_override=40, max_model_len=1024) as engine:
        expected = engine.generate(prompts, tokens=200)
    with Engine({**HOST, "load_mode": mode}, num_gpu_blocks_override=40, max_model_len=1024) as engine:
        assert engine.generate(prompts, tokens=200) == expected
        engine.settle()
        assert counts(engine).lost > 0, "nothing was preempted"
        assert engine.generate(prompts, tokens=200) == expected
        assert loaded(engine) > 0


SPECULATION = """
import sys
sys.path[:0] = {path!r}
from engine import Engine, prompt
from test_vllm import loaded
speculation = dict(method="ngram", num_speculative_tokens=3, prompt_lookup_max=3)
prompts = [prompt(60, 20) * 4, prompt(50, 21) * 3]
engine = Engine({extra!r}, speculative_config=speculation)
tokens = engine.generate(prompts, tokens=80)
print("TOKENS", tokens)
if {extra!r}:
    engine.forget()
    print("AGAIN", engine.generate(prompts, tokens=80))
    print("LOADED", loaded(engine))
    engine.forget()
    before = loaded(engine)
    engine.generate([each + more for each, more in zip(prompts, tokens)], tokens=4)
    print("LONGER", loaded(engine) - before)
"""


def run_alone(code, **environment):
    """Runs a program in a process of its own; returns its lines by their first words."""
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=560, check=False
    )
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-4000:]
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in ran.stdout.splitlines() if line[:1].isupper()}


def test_speculation():
    """In processes of their own: vLLM starts no second engine where its drafter has imported numba."""
    here = [str(Path(__file__).parent)]
    expected = run_alone(SPECULATION.format(path=here, extra=None))["TOKENS"]
    for mode in ("async", "in_step"):
        lines = run_alone(SPECULATION.format(path=here, extra={**HOST, "load_mode": mode}))
        assert lines["TOKENS"] == lines["AGAIN"] == expected
        assert int(lines["LOADED"]) == 224 + 128
        assert int(lines["LONGER"]) > 240 + 150, "generated tokens, some of which were drafts, were not saved"


def test_salts(reference):
    with Engine(HOST) as engine:
        assert engine.generate(PROMPTS, salt="a") == reference
        engine.forget()
        assert engine.generate(PROMPTS, salt="b") == reference
        assert engine.cached == [0] * len(PROMPTS) and loaded(engine) == 0
        engine.forget()
        assert engine.generate(PROMPTS, salt="a") == reference
        assert loaded(engine) == sum(CACHED)


def test_a_hybrid_model_is_declined_and_runs(caplog):
    import logging

    logging.getLogger("vllm").propagate = True
    with Engine(model="tinyhyb") as engine:
        expected = engine.generate(PROMPTS)
    with Engine(HOST, model="tinyhyb") as engine:
        assert engine.generate(PROMPTS) == expected
        engine.settle()
        assert engine.generate(PROMPTS) == expected
        assert engine.connector._scheduler is None
    assert "Cairn is off, and the engine runs without it: the model has 2 groups" in caplog.text
    # With one kind of groups it is supported.
    with Engine(model="tinyhyb", disable_hybrid_kv_cache_manager=True) as engine:
        expected = engine.generate(PROMPTS)
    with Engine(HOST, model="tinyhyb", disable_hybrid_kv_cache_manager=True) as engine:
        check_warm(engine, expected)


def test_an_engine_that_zeroes_blocks_is_declined():
    """What Mamba layers and KV caches of different precision make vLLM do, before it says which blocks it overwrites."""
    from types import SimpleNamespace

    from cairn.vllm.pages import Declined
    from cairn.vllm.v0_32 import block_facts

    with pytest.raises(Declined, match="the engine zeroes blocks"):
        block_facts(SimpleNamespace(parallel_config=None), SimpleNamespace(needs_kv_cache_zeroing=True))


def test_a_reset_forgets_everything(reference):
    with Engine(HOST) as engine:
        engine.generate(PROMPTS)
        engine.settle()
        assert engine.llm.reset_prefix_cache(reset_connector=True)
        assert engine.generate(PROMPTS) == reference
        assert loaded(engine) == 0


def test_events_have_their_tier(tmp_path):
    """What the tiers store is announced under the same hashes as what the engine stores on the device."""
    events = {"enable_kv_cache_events": True, "publisher": "null"}
    disk = {"disk.path": str(tmp_path / "blocks"), "disk.size": "64MiB"}
    with Engine({**HOST, **disk}, kv_events_config=events) as engine:
        published = []
        engine.core.scheduler.kv_event_publisher.publish = lambda batch: published.extend(batch.events)
        engine.generate(PROMPTS)
        wait_for_disk(engine, sum(CACHED) // BLOCK)
        engine.generate(PROMPTS[3:])  # events go out with a step's output
        stored = {"GPU": set(), "CPU": set(), "STORAGE": set()}
        for event in published:
            if type(event).__name__ == "BlockStored":
                stored[event.medium].update(event.block_hashes)
        assert stored["CPU"] and stored["CPU"] == stored["STORAGE"] == stored["GPU"]


# --- damage ---


def test_zeroed_bytes_would_change_tokens(reference):
    """What verification protects from: blocks that are zeroed after they were verified give other tokens."""
    with Engine(HOST) as engine:
        engine.generate(PROMPTS)
        engine.forget()
        worker = engine.worker._worker
        take = worker.take

        def spoiled():
            taken = take()
            if taken.received:
                spoil = kv_range(engine)
                ctypes.memset(spoil.start, 0, len(spoil))
            return taken

        worker.take = spoiled
        assert engine.generate(PROMPTS[:1]) != reference[:1]


@pytest.mark.parametrize("mode", ["async", "in_step"])
@pytest.mark.parametrize("damage, policy", [("flip", "recompute"), ("flip", "fail"), ("zero", "recompute")])
def test_damage_in_host_memory_never_reaches_a_token(mode, policy, damage, reference):
    with Engine({**HOST, "load_mode": mode}, policy=policy) as engine:
        assert engine.generate(PROMPTS[:1]) == reference[:1]
        engine.settle()
        # The sixth block of the prompt, wherever the engine has put it.
        pool = engine.core.scheduler.kv_cache_manager.block_pool
        used = [block.block_id for block in pool.blocks if block.block_hash is not None]
        page = device_block(engine, used[5])
        copies = memory.find(page, kv_range(engine))
        assert copies, "the page is not in the host tier"
        for copy in copies:
            memory.flip(copy + 100) if damage == "flip" else memory.zero(copy, len(page))
        engine.forget()
        tokens = engine.generate(PROMPTS[:1])
        engine.settle()
        assert counts(engine).failed > 0 and 0 < loaded(engine) < CACHED[0], counts(engine)
        if policy == "recompute":
            assert tokens == reference[:1]
        else:
            assert tokens == [[]] and engine.reasons == ["error"]
        # What was computed again, or by the next request, is saved again and good.
        engine.forget()
        assert engine.generate(PROMPTS[:1]) == reference[:1]
        engine.forget()
        assert engine.generate(PROMPTS[:1]) == reference[:1]


@pytest.mark.parametrize("damage", ["flip", "zero"])
def test_damage_on_disk_never_reaches_a_token(damage, tmp_path, reference):
    disk = {**HOST, "disk.path": str(tmp_path / "blocks"), "disk.size": "64MiB"}
    with Engine(disk) as engine:
        assert engine.generate(PROMPTS) == reference
        wait_for_disk(engine, sum(CACHED) // BLOCK)
    file = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    for at in range(2 << 20, len(content), 40_000):  # beyond the header
        if damage == "flip":
            content[at] ^= 1
        else:
            content[at : at + 4096] = bytes(4096)
    file.write_bytes(content)
    with Engine(disk) as engine:
        assert engine.generate(PROMPTS) == reference
        engine.settle()
        assert counts(engine).failed > 0


def wait_for_disk(engine, blocks, limit=60.0):
    deadline = time.monotonic() + limit
    while True:
        engine.step()
        tier = next(tier for tier in engine.connector._scheduler.scheduler.status().tiers if tier.tier == "G3")
        if tier.registered >= blocks:
            return
        assert time.monotonic() < deadline, tier


# --- aborts, restarts ---


@pytest.mark.parametrize("mode", ["async", "in_step"])
def test_aborts_in_every_state(mode, reference):
    """Requests that are aborted after 0, 1, 2, ... steps, cold and warm; afterwards nothing is held, and tokens are right."""
    from vllm import SamplingParams

    with Engine({**HOST, "load_mode": mode}, max_num_batched_tokens=128, max_num_seqs=4) as engine:
        llm_engine = engine.llm.llm_engine
        free = engine.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        engine.settle()
        before = free()
        for warm in (False, True):
            for steps in range(12):
                name = f"{warm}-{steps}"
                ids = PROMPTS[0] if warm else prompt(400, 100 + steps)
                parameters = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
                llm_engine.add_request(name, {"prompt_token_ids": ids}, parameters)
                for _ in range(steps):
                    engine.step()
                llm_engine.abort_request([name], internal=False)
                engine.settle()
                assert free() == before, name
            assert engine.generate(PROMPTS) == reference
            engine.forget()
        assert loaded(engine) > 0


CHILD = """
import sys
sys.path[:0] = {path!r}
from conftest import PROMPTS
from engine import Engine
from test_vllm import HOST, CACHED, counts, wait_for_disk
engine = Engine({{**HOST, "disk.path": {file!r}, "disk.size": "64MiB"}})
print("TOKENS", engine.generate(PROMPTS), flush=True)
print("CACHED", engine.cached, counts(engine).loaded_disk, flush=True)
wait_for_disk(engine, sum(CACHED) // 32)
print("READY", flush=True)
sys.stdin.readline()
"""


def test_a_killed_engine_is_warm_after_a_restart(tmp_path, reference):
    code = CHILD.format(path=[str(Path(__file__).parent)], file=str(tmp_path / "blocks"))
    for warm in (False, True):
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        lines = {}
        for line in child.stdout:
            word, _, rest = line.partition(" ")
            lines[word.strip()] = rest.strip()
            if word.strip() == "READY":
                break
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert lines["TOKENS"] == str(reference)
        assert lines["CACHED"] == (f"{CACHED} {sum(CACHED)}" if warm else f"{[0] * len(PROMPTS)} 0")


# --- many prompts ---


def test_random_prompts_with_faults():
    """200 prompts that share prefixes, in batches; loads fail now and then. The tokens are those of an engine without Cairn."""
    chance = random.Random(7)
    roots = [prompt(chance.randrange(64, 400), 1000 + i) for i in range(12)]
    prompts = []
    for i in range(200):
        root = chance.choice(roots)
        prompts.append(root[: chance.randrange(16, len(root) + 1)] + prompt(chance.randrange(1, 60), 5000 + i))
    batches = [prompts[i : i + 8] for i in range(0, len(prompts), 8)]
    with Engine(num_gpu_blocks_override=80) as engine:
        expected = [engine.generate(batch, tokens=8) for batch in batches]
    with Engine({"host.blocks": 60, "in_step_save_blocks": 2}, num_gpu_blocks_override=80) as engine:
        failures = 0
        for batch, tokens in zip(batches, expected, strict=True):
            if chance.random() < 0.5:  # a block of the host tier is damaged
                pool = engine.core.scheduler.kv_cache_manager.block_pool
                used = [block.block_id for block in pool.blocks if block.block_hash is not None]
                page = device_block(engine, chance.choice(used)) if used else b""
                for copy in memory.find(page, kv_range(engine)) if any(page) else ():
                    memory.flip(copy + chance.randrange(len(page)))
                    failures += 1
            if chance.random() < 0.5:
                engine.forget()
            assert engine.generate(batch, tokens=8) == tokens
        assert failures > 0 and loaded(engine) > 0


# --- more processes ---


def test_an_unsupported_version_is_one_line(monkeypatch):
    import vllm

    import cairn.vllm

    cairn.vllm.__dict__.pop("CairnConnector", None)
    monkeypatch.setattr(vllm, "__version__", "0.99.1")
    with pytest.raises(ImportError, match="does not support vLLM 0.99.1"):
        _ = cairn.vllm.CairnConnector


TENSOR_PARALLEL = """
import sys
sys.path[:0] = {path!r}
from conftest import PROMPTS
from engine import Engine
if __name__ == "__main__":
    engine = Engine({extra!r}, tensor_parallel_size=2)
    print("COLD", engine.generate(PROMPTS), engine.cached, flush=True)
    import time
    for _ in range(100):
        if engine.llm.reset_prefix_cache(): break
        time.sleep(0.1)
    print("WARM", engine.generate(PROMPTS), engine.cached, flush=True)
"""


def test_two_tensor_parallel_ranks(tmp_path):
    outputs = []
    for extra in (None, HOST):
        file = tmp_path / "engine_run.py"
        file.write_text(TENSOR_PARALLEL.format(path=[str(Path(__file__).parent)], extra=extra))
        environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        ran = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=560, check=False)
        assert ran.returncode == 0, ran.stderr[-4000:]
        outputs.append([line for line in ran.stdout.splitlines() if line.startswith(("COLD", "WARM"))])
    alone, cairn = outputs
    tokens = alone[0].split(" ", 1)[1].rsplit("[", 1)[0]
    assert cairn[0].split(" ", 1)[1].rsplit("[", 1)[0] == tokens
    assert cairn[1] == f"WARM {tokens}{CACHED}"
