"""cairn.vllm.tier below vLLM's own host tier, in a real vLLM on CPUs."""

import time
from pathlib import Path

import pytest
from conftest import PROMPTS
from engine import BLOCK, Engine

CHUNKS = [len(each) // BLOCK for each in PROMPTS]  # vLLM stores all full blocks of a prompt
CACHED = [(len(each) - 1) // BLOCK * BLOCK for each in PROMPTS]


class TieredEngine(Engine):
    """An engine with vLLM's OffloadingConnector, and Cairn below its host tier."""

    def __init__(self, cairn, **options):
        self.where = cairn
        tiers = [{"type": "CairnTier", "module_path": "cairn.vllm.tier", "host.pinning": "off", **cairn}]
        extra = {"spec_name": "CpuTieringSpec", "spec_module_path": "cpu_offload", "cpu_bytes_to_use": 16 << 20}
        connector = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}
        connector["kv_connector_extra_config"] = {**extra, "secondary_tiers": tiers}
        super().__init__(kv_transfer_config=connector, **options)

    @property
    def offload(self):
        return self.connector.connector_scheduler.manager

    @property
    def tier(self):
        return self.offload.secondary_tiers[0]

    def stored(self):
        """How many chunks Cairn has."""
        pool = self.tier.manager.disk if "disk.path" in self.where else self.tier.manager.host
        return pool.counts.registered

    def wait_until_stored(self, chunks, limit=60.0):
        deadline = time.monotonic() + limit
        while self.stored() < chunks or self.offload.has_pending_work():
            assert time.monotonic() < deadline, f"{self.stored()} of {chunks} chunks are stored"
            self.step()

    def forget_all_but_cairn(self):
        """Empties the engine's own caches, that of the device and that of the host."""
        self.settle()
        assert self.llm.reset_prefix_cache(reset_connector=True)


def disk(folder):
    return {"disk.path": str(folder / "blocks"), "disk.size": "64MiB"}


@pytest.mark.parametrize("where", ["disk", "host"])
def test_warm_tokens_are_the_same(where, tmp_path, reference):
    tiers = disk(tmp_path) if where == "disk" else {"host.size": "64MiB"}
    with TieredEngine(tiers) as engine:
        assert engine.generate(PROMPTS) == reference
        engine.wait_until_stored(sum(CHUNKS))
        engine.forget_all_but_cairn()
        assert engine.generate(PROMPTS) == reference
        assert engine.cached == CACHED
        if where == "host":
            return
    with TieredEngine(tiers) as engine:  # after a restart
        assert engine.generate(PROMPTS) == reference
        assert engine.cached == CACHED


def test_loaded_bytes_decide_the_tokens(tmp_path, reference):
    """That the tests here can fail: chunks that are zeroed after they were verified give other tokens."""
    with TieredEngine(disk(tmp_path)) as engine:
        engine.generate(PROMPTS)
        engine.wait_until_stored(sum(CHUNKS))
        engine.forget_all_but_cairn()
        finished = engine.tier.get_finished_jobs

        def spoiled():
            jobs = list(finished())
            if jobs:
                engine.tier._primary_kv_view.cast("B")[:] = bytes(engine.tier._primary_kv_view.nbytes)
            return jobs

        engine.tier.get_finished_jobs = spoiled
        assert engine.generate(PROMPTS[:1]) != reference[:1]


@pytest.mark.parametrize("share", [8, 1])
def test_damage_on_disk_never_reaches_a_token(share, tmp_path, reference):
    """One page of the file in eight is damaged, or all are: then Cairn takes the disk out of use for a while."""
    with TieredEngine(disk(tmp_path)) as engine:
        assert engine.generate(PROMPTS) == reference
        engine.wait_until_stored(sum(CHUNKS))
    file = Path(tmp_path / "blocks")
    content = bytearray(file.read_bytes())
    for at in range(2 << 20, len(content), 4096 * share):  # beyond the header
        content[at + 100] ^= 1
    file.write_bytes(content)
    with TieredEngine(disk(tmp_path)) as engine:
        assert engine.generate(PROMPTS) == reference
        assert sum(engine.cached) < sum(CACHED)
        for _ in range(3):
            engine.settle()
            engine.forget_all_but_cairn()
            assert engine.generate(PROMPTS) == reference
        if share == 8:
            assert engine.cached == CACHED, "what was computed again was not stored again"


def test_a_load_that_fails_is_a_miss(tmp_path, reference):
    """A tier that has chunks and cannot load them: every request ends, and with the right tokens."""
    with TieredEngine(disk(tmp_path)) as engine:
        engine.generate(PROMPTS)
        engine.wait_until_stored(sum(CHUNKS))
        engine.forget_all_but_cairn()
        chunks = engine.tier._chunks
        run = chunks._run
        chunks._run = lambda job, is_load, names, addresses: run(job, is_load, names, addresses[:-1] if is_load else addresses)
        assert engine.generate(PROMPTS) == reference
        assert engine.cached == [0] * len(PROMPTS)


def test_a_hybrid_model(tmp_path):
    """vLLM's host tier holds hybrid models, and so does Cairn below it."""
    with Engine(model="tinyhyb") as engine:
        expected = engine.generate(PROMPTS)
    with TieredEngine(disk(tmp_path), model="tinyhyb") as engine:
        assert engine.generate(PROMPTS) == expected
        engine.wait_until_stored(sum(CHUNKS))
        engine.forget_all_but_cairn()
        assert engine.generate(PROMPTS) == expected
        assert sum(engine.cached) > 0


def test_aborts_in_every_state(tmp_path, reference):
    """Requests that are aborted after 0, 1, 2, ... steps, while chunks are loaded and stored: nothing is held afterwards."""
    from vllm import SamplingParams

    with TieredEngine(disk(tmp_path)) as engine:
        engine.generate(PROMPTS)
        engine.wait_until_stored(sum(CHUNKS))
        free = engine.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        before = free()
        parameters = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
        for steps in range(8):
            engine.forget_all_but_cairn()
            engine.llm.llm_engine.add_request(str(steps), {"prompt_token_ids": PROMPTS[0]}, parameters)
            for _ in range(steps):
                engine.step()
            engine.llm.llm_engine.abort_request([str(steps)], internal=False)
            engine.settle()
            assert free() == before, steps
        assert not engine.tier._missed and not engine.tier._loads
        engine.forget_all_but_cairn()
        assert engine.generate(PROMPTS) == reference


def test_a_mistake_ends_the_start_with_its_name(tmp_path):
    with pytest.raises(Exception, match="has no storage|model.layers"):
        TieredEngine({"disk.size": "64MiB"})
