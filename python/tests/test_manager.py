import asyncio
import gc
import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from managers import BLOCK, compute, manager, prompt, small

import cairn


# --- the HTTP port ---


def test_one_setting_opens_the_http_port():
    with cairn.Manager(small(), http_listen="127.0.0.1:0") as manager:
        with urllib.request.urlopen(f"http://{manager.http_address}/v1/status", timeout=60) as response:
            assert [tier["level"] for tier in json.load(response)["tiers"]] == ["G1", "G2"]
        address = manager.http_address
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{address}/v1/status", timeout=60)
    with cairn.Manager(small()) as manager:
        assert manager.http_address is None
    with pytest.raises(cairn.InvalidArgumentError, match="http.listen"):
        cairn.Manager(small(), http_listen="nowhere")


# --- configuration ---


def test_configuration_is_a_dict_toml_or_keywords(tmp_path):
    with cairn.Manager(small()) as manager:
        assert manager.block_size == BLOCK
        assert manager.config["host.blocks"] == "32"
    toml = """
block_size = 4
[model]
layers = 3
heads = 2
head_size = 8
element_type = "f16"
[host]
blocks = 8
pinning = "off"
"""
    with cairn.Manager.from_toml(toml) as manager:
        assert manager.host.capacity == 8
        assert manager.device is None
    path = tmp_path / "cairn.toml"
    path.write_text(toml)
    with cairn.Manager.from_file(path, host_blocks=5, **{"model.name": "other"}) as manager:
        assert manager.host.capacity == 5
        assert manager.config["model.name"] == "other"


def test_all_mistakes_are_in_one_error():
    with pytest.raises(cairn.InvalidArgumentError) as error:
        cairn.Manager(small(host={"sise": "1GiB"}), block_size="many", device_gpu="first")
    text = str(error.value)
    assert "3 mistakes" in text
    assert "did you mean host.size" in text
    assert "block_size is 'many'" in text
    assert "device.gpu is 'first'" in text
    assert error.value.code == "invalid_argument"
    assert isinstance(error.value, ValueError)


def test_a_missing_file_and_a_wrong_type_of_configuration():
    with pytest.raises(cairn.Error, match="no-such"):
        cairn.Manager.from_file("/no-such/cairn.toml")
    with pytest.raises(cairn.InvalidArgumentError, match="from_toml"):
        cairn.Manager("block_size = 4")


# --- blocks up and down ---


def test_blocks_are_offloaded_and_loaded_again(manager):
    keys = manager.keys(prompt(4))
    compute(manager, keys)
    manager.drain()
    assert manager.host.counts.registered == 4
    manager.device.reset_inactive()
    where = manager.locate(keys)
    assert (where.blocks, where.count("host"), where.levels.tolist()) == (4, 4, [1, 1, 1, 1])

    outcome = manager.load(keys).wait(timeout=10)
    assert outcome.prefix == 4
    assert outcome.sources == {"device": 0, "host": 4, "disk": 0}
    assert outcome.why == ""
    device = manager.memory("device").array().numpy()
    for i, block_id in enumerate(outcome.blocks.block_ids):
        assert (device[block_id] == i + 1).all()
    outcome.blocks.release()


def test_a_load_finds_only_what_is_there(manager):
    keys = manager.keys(prompt(4))
    compute(manager, keys[:2])
    manager.drain()
    manager.device.reset_inactive()
    load = manager.load(keys)
    outcome = load.wait()
    assert outcome.prefix == 2
    assert load.done()
    assert load.result() is outcome
    assert manager.load(manager.keys(prompt(3, seed=9))).wait().prefix == 0


def test_onboard_prefetch_and_offload(tmp_path):
    config = small(disk={"blocks": 64, "path": str(tmp_path / "blocks"), "direct": False}, offload={})
    config["offload"] = {"host": {"mode": "off"}, "disk": {"mode": "off"}}
    with cairn.Manager(config) as manager:
        keys = manager.keys(prompt(4))
        compute(manager, keys)
        assert manager.host.counts.registered == 0
        outcome = manager.offload(keys, into="host").wait()
        assert outcome.is_below == [True] * 4
        assert outcome.refused == {}
        manager.device.reset_inactive()
        with manager.host.match_prefix(keys) as held:
            with manager.onboard(held).wait(10) as brought:
                assert len(brought) == 4
                assert brought.keys == keys
        manager.offload(keys, into="disk").wait(10)
        manager.device.reset_inactive()
        manager.host.reset_inactive()
        assert manager.locate(keys).count("disk") == 4
        assert manager.prefetch(keys).wait(10) == 4
        assert manager.locate(keys).count("host") == 4


def test_onboard_that_is_refused_leaves_the_targets(manager):
    keys = manager.keys(prompt(2))
    compute(manager, keys)
    manager.drain()
    manager.device.reset_inactive()
    targets = manager.device.allocate(1)
    with manager.host.match_prefix(keys) as held, pytest.raises(cairn.InvalidArgumentError):
        manager.onboard(held, targets)
    assert len(targets) == 1
    targets.release()


def test_a_blocking_wait_has_a_timeout_and_lets_other_threads_run(tmp_path):
    with cairn.Manager(small()) as manager:
        manager.pause("device", "host")
        keys = manager.keys(prompt(2))
        compute(manager, keys)
        with pytest.raises(cairn.FailedPreconditionError):
            manager.offload(keys)
        manager.resume("device", "host")
        ran = threading.Event()
        thread = threading.Thread(target=ran.set)
        thread.start()
        manager.offload(keys).wait(10)
        thread.join()
        assert ran.is_set()


# --- asyncio ---


def test_loads_are_awaitable(manager):
    prompts = [prompt(2, seed) for seed in range(6)]

    async def load(tokens):
        outcome = await manager.load(manager.keys(tokens))
        with outcome.blocks:
            return outcome.prefix

    async def main():
        return await asyncio.gather(*(load(tokens) for tokens in prompts))

    for tokens in prompts:
        compute(manager, manager.keys(tokens))
    manager.drain()
    manager.device.reset_inactive()
    assert asyncio.run(main()) == [2] * 6
    manager.device.reset_inactive()
    assert asyncio.run(main()) == [2] * 6, "a second loop has its own descriptor"


def slow_manager(tmp_path):
    """Loads from disk that take a while: one block at a time through a slow path."""
    config = small(disk={"blocks": 512, "path": str(tmp_path / "blocks"), "direct": False, "in_flight": 1, "io": "threads"})
    config["model"] |= {"layers": 32, "heads": 8, "head_size": 128}
    config["device"]["blocks"] = 200
    config["host"]["blocks"] = 200
    config["offload"]["disk"] = {"mode": "write-through"}
    return cairn.Manager(config)


def test_cancelling_the_task_cancels_the_load(tmp_path):
    async def main(manager, keys):
        load = manager.load(keys)

        async def wait():
            return await load

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return load.wait(10)

    with slow_manager(tmp_path) as manager:
        keys = manager.keys(prompt(150))
        compute(manager, keys)
        manager.drain()
        manager.device.reset_inactive()
        manager.host.reset_inactive()
        outcome = asyncio.run(main(manager, keys))
        assert outcome.prefix < 150, "what had not begun did not begin"
        outcome.blocks.release()


def test_awaiting_a_load_that_is_over_needs_no_loop_iteration(manager):
    keys = manager.keys(prompt(1))

    async def main():
        load = manager.load(keys)
        load.wait(5)
        return await load

    assert asyncio.run(main()).prefix == 0


# --- control ---


def test_reset_is_a_fence(manager):
    keys = manager.keys(prompt(4))
    compute(manager, keys)
    manager.drain()
    report = manager.reset_keys("host", keys[2:])
    assert (report.reset, report.not_found, report.in_use) == (2, 0, 0)
    assert manager.reset("host").reset == 2
    assert manager.locate(keys).count("device") == 4
    assert manager.reset().reset == 4
    assert manager.locate(keys).blocks == 0
    assert manager.invalidate(7).reset == 0
    assert manager.weights_generation == 7
    with pytest.raises(cairn.InvalidArgumentError):
        manager.invalidate(7)


def test_resize_and_hints():
    with cairn.Manager(small(requests={"retention": True}, host={"max_size": "1MiB"})) as manager:
        def withheld():
            host = next(tier for tier in manager.status().tiers if tier.tier == "G2")
            return host.withheld + host.to_withhold

        before = withheld()
        manager.resize_host(8)
        assert withheld() == before + 24
        keys = manager.keys(prompt(3))
        compute(manager, keys)
        assert manager.hint(keys, "system_prompt") >= 3
        with pytest.raises(cairn.InvalidArgumentError, match="expected returns"):
            manager.hint(keys, "maybe")


def test_status_is_a_record(manager):
    compute(manager, manager.keys(prompt(2)))
    manager.drain()
    status = manager.status()
    assert [tier.tier for tier in status.tiers] == ["G1", "G2"]
    assert status.tiers[1].registered == status["tiers"][1]["registered"] == 2
    assert status.offload[0].copied == 2
    assert type(status.to_dict()["tiers"][0]) is dict
    with pytest.raises(AttributeError, match="there are worker_id"):
        status.nothing


def test_metrics(manager):
    compute(manager, manager.keys(prompt(2)))
    manager.drain()
    assert 'cairn_offload_copied_total{into="G2"} 2' in manager.metrics()
    sample = next(s for s in manager.metric_samples() if s.name == "cairn_offload_copied_total")
    assert (sample.labels, sample.kind, sample.value) == ({"into": "G2"}, "counter", 2)


def test_prometheus_collector(manager):
    prometheus_client = pytest.importorskip("prometheus_client")
    from cairn.prometheus import CairnCollector

    registry = prometheus_client.CollectorRegistry()
    registry.register(CairnCollector(manager))
    compute(manager, manager.keys(prompt(2)))
    manager.drain()
    assert registry.get_sample_value("cairn_offload_copied_total", {"into": "G2"}) == 2
    manager.close()
    assert list(registry.collect()) == []


def test_wrong_tiers_are_refused(manager):
    with pytest.raises(cairn.InvalidArgumentError, match="expected device, host or disk"):
        manager.reset("tape")
    with pytest.raises(cairn.NotFoundError):
        manager.offload(manager.keys(prompt(1)), into="disk")


def test_time_to_wait_is_checked(manager):
    with pytest.raises(cairn.InvalidArgumentError):
        manager.drain(-1)
    before = time.monotonic()
    manager.drain(30)
    assert time.monotonic() - before < 20


def test_keys_follow_salt_and_tokens(manager):
    tokens = prompt(3)
    assert manager.keys(tokens) == manager.keys(tokens.tolist()) == cairn.hash_tokens(tokens, BLOCK, manager.hasher)
    assert manager.keys(tokens, salt="a") != manager.keys(tokens)
    assert len(manager.keys(tokens[:-1])) == 2
    assert manager.keys(np.array([], dtype=np.uint32)) == manager.keys([])
    gc.collect()
