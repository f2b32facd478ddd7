"""What operators set, and what Cairn holds of an engine's KV cache: without vLLM."""

import os
import subprocess
import sys

import numpy as np
import pytest
from fake_torch import FakeTensor

import cairn
from cairn.vllm import versions
from cairn.vllm.pages import Declined, ModelFacts, PageFacts, describe
from cairn.vllm.settings import (
    Settings,
    SettingsError,
    available_memory,
    default_address,
    default_host_size,
    zmq_library,
)


def test_a_stream_of_events_is_one_setting(tmp_path, monkeypatch):
    assert Settings.of({"host.size": "1GiB"}).keys == {"host.size": "1GiB"}
    package, libraries = tmp_path / "zmq", tmp_path / "pyzmq.libs"
    for folder in (package, libraries):
        folder.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "zmq", raising=False)
    assert zmq_library() is None, "not a wheel: the system's library"
    (libraries / "libzmq-1234.so.5.2.5").touch()
    assert Settings.of({"events": {"publish": "tcp://*:5567"}}).keys == {
        "events.publish": "tcp://*:5567",
        "events.library": str(libraries / "libzmq-1234.so.5.2.5"),
        "event_token_ids": True,
    }


def test_the_connector_needs_vllm_and_the_rest_does_not():
    for use in ("cairn.vllm.CairnConnector", "cairn.vllm.tier.CairnTier"):
        code = f"import cairn.vllm.tier, cairn.vllm.scheduler_side; {use}"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ran.returncode != 0 and "No module named 'vllm'" in ran.stderr


def test_versions():
    assert versions.adapter_of("0.32.0") == versions.adapter_of("0.32.4+cpu") == "cairn.vllm.v0_32"
    for version in ("0.31.9", "0.33.0rc1", "1.0", "dev"):
        with pytest.raises(ImportError, match=f"does not support vLLM {version}; supported: 0.32") as error:
            versions.adapter_of(version)
        assert "\n" not in str(error.value)
    # Every module of the table is there, and every adapter is in the table.
    folder = os.path.dirname(versions.__file__)
    adapters = {name[:-3] for name in os.listdir(folder) if name.startswith("v") and name[1].isdigit()}
    modules = [module.rsplit(".", 1)[1] for _, _, module in versions.SUPPORTED]
    assert adapters == {*modules, *(f"{module}_tier" for module in modules)}


def test_settings(tmp_path):
    settings = Settings.of({"host.size": "8GiB", "disk": {"path": "/x", "size": "1GB"}, "loading_blocks": 7})
    assert settings.keys == {"host.size": "8GiB", "disk.path": "/x", "disk.size": "1GB"}
    assert settings.options == {"loading_blocks": 7} and not settings.in_step and settings.has_tier({})
    assert Settings.of({"load_mode": "in_step"}).in_step
    assert not Settings.of({"disk.path": "/x"}).has_tier({})
    assert Settings.of({}).has_tier({"CAIRN_HOST_SIZE": "1GiB"})
    file = tmp_path / "cairn.toml"
    file.write_text("")
    assert Settings.of({"config_file": str(file)}).has_tier({})
    for wrong in ({"load_mode": "sometimes"}, {"config_file": str(tmp_path / "none")}):
        with pytest.raises(SettingsError):
            Settings.of(wrong)


def test_the_default_host_tier_is_a_part_of_what_is_available(tmp_path):
    for folder in ("proc/self", "sys/fs/cgroup/pod"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 64000000 kB\nMemAvailable: 40000000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/pod\n")
    assert available_memory(tmp_path) == 40_000_000 * 1024
    (tmp_path / "sys/fs/cgroup/pod/memory.max").write_text("8000000000\n")
    (tmp_path / "sys/fs/cgroup/pod/memory.current").write_text("2000000000\n")
    assert available_memory(tmp_path) == 6_000_000_000
    assert default_host_size(2, tmp_path) == 750_000_000
    (tmp_path / "sys/fs/cgroup/pod/memory.max").write_text("max\n")
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 4000000000 kB\n")
    assert default_host_size(1, tmp_path) == 64 << 30


def test_the_address_is_in_a_folder_of_this_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address = default_address("engine")
    assert address == default_address("engine") != default_address("other")
    folder = tmp_path / f"cairn-{os.getuid()}"
    assert address.startswith(f"unix:{folder}/") and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(SettingsError, match="this user alone"):
        default_address("engine")


def test_a_page_is_one_run_of_bytes_whatever_is_in_it():
    memory = np.zeros((3, 10, 2, 16, 8), dtype=np.uint16)  # [layer][block][head][token][element]
    tensors = {f"layers.{i}": FakeTensor(memory[i]) for i in range(3)}
    pages = describe(tensors, blocks=10, page_size=16, page_bytes=512)
    assert pages.facts == PageFacts(layers=3, blocks=10, page_bytes=512, layout="2.1x16.2x8.3:bfloat16")
    pointer, size, kind, _, sizes, strides = pages.group.facts[1]
    assert (pointer, size, kind) == (memory[1].ctypes.data, 5120, "system")
    assert tuple(sizes) == (10, 16, 1, 32) and tuple(strides) == (512, 32, 32, 1)
    # Tokens before heads in memory: another layout, the same run.
    other = describe({"a": FakeTensor(memory[0].reshape(10, 16, 2, 8).transpose(0, 2, 1, 3))}, 10, 16, 512)
    assert other.facts.layout == "16.2x2.1x8.3:bfloat16" and other.group.facts[0][5] == (512, 32, 32, 1)
    # All layers of a block together.
    across = np.zeros((10, 3, 2, 16, 8), dtype=np.uint16)
    assert describe({"a": FakeTensor(across[:, 1])}, 10, 16, 512).group.facts[0][5][0] == 3 * 512
    # A kernel with blocks of half the size, and layers that share a cache.
    halves = memory[0].reshape(20, 2, 8, 8)
    shared = describe({"a": FakeTensor(halves), "b": FakeTensor(halves)}, 10, 16, 512)
    assert shared.facts.layers == 1 and shared.names == {"a": "a", "b": "a"}
    assert tuple(shared.group.facts[0][4]) == (10, 16, 1, 32)


def test_caches_that_are_declined():
    memory = np.zeros((10, 2, 16, 8), dtype=np.uint16)
    for tensors, bytes_, text in (
        ({}, 512, "no KV cache"),
        ({"a": FakeTensor(memory[:9])}, 512, "does not have 10 blocks"),
        ({"a": FakeTensor(memory)}, 513, "cannot be divided"),
        ({"a": FakeTensor(memory)}, 1024, "but the engine says 1024"),
        ({"a": FakeTensor(memory[:, :, ::2])}, 256, "not in one piece"),
        ({"a": [FakeTensor(memory)]}, 512, "not one tensor"),
        ({"a": FakeTensor(memory), "b": FakeTensor(memory.copy(), "torch.float16")}, 512, "different layouts"),
    ):
        with pytest.raises(Declined, match=text):
            describe(tensors, 10, 16, bytes_)


def test_all_facts_are_in_the_namespace():
    pages = PageFacts(layers=2, blocks=10, page_bytes=512, layout="x")
    model = ModelFacts("m", 16, tensor_parallel=4, replicas=2, facts={"hash": "sha256"})
    keys = model.keys(pages)
    assert keys["model.heads"] == 2 and keys["model.head_size"] == 32 and keys["model.layers"] == 2
    assert keys["model.name"] == "m;hash=sha256;layout=x;page=512;tp=4"
    with cairn.Scheduler(None, device_blocks=10, ranks=4, host_blocks=4, **keys) as scheduler:
        assert scheduler.status().tiers
    with pytest.raises(Declined):
        ModelFacts("m", 16, tensor_parallel=3, replicas=2, facts={}).keys(pages)
