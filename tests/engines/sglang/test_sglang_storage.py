"""cairn.sglang in a real SGLang on CPU, with a tiny random model. Minutes: each engine takes one to two to start."""

import shutil
import subprocess
from pathlib import Path

import pytest
from sglang_engine import Engine, cairn_config, installation, prompts

from cairn.sglang import SUPPORTED_VERSIONS

FOLDER, MISSING = installation()
pytestmark = pytest.mark.skipif(FOLDER is None, reason=MISSING)

PROMPTS = prompts(12, seed=1)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("sglang")


@pytest.fixture(scope="module")
def expected(scratch):
    """The tokens of an engine without a hierarchical cache."""
    with Engine(FOLDER, scratch, disable_radix_cache=True) as engine:
        tokens, from_storage = engine.generate(PROMPTS)
    assert from_storage == 0
    return tokens


@pytest.fixture(scope="module")
def stored(scratch, expected):
    """A file that an engine filled before it was killed; cold and warm runs in it are compared on the way."""
    path = scratch / "blocks"
    with Engine(FOLDER, scratch, cairn_config(path)) as engine:
        assert engine.generate(PROMPTS)[0] == expected, "cold"
        engine.flush()
        tokens, from_storage = engine.generate(PROMPTS)
        assert tokens == expected, "warm"
        assert from_storage > sum(map(len, PROMPTS)) / 2
        engine.kill()
    return path


def damaged_copy(path, name, change, share):
    """A copy of the file in which `change` was applied to the bytes behind the entries, for a share of the blocks."""
    copy = path.with_name(name)
    shutil.copyfile(path, copy)
    copy.chmod(0o600)
    stored = bytearray(copy.read_bytes())
    for at in range(2 << 20, len(stored), 4096):
        if (at // 16384) % 8 < share * 8:  # a page of the tiny model has 16 KiB
            change(stored, at)
    copy.write_bytes(stored)
    return copy


def flip(stored, at):
    stored[at + 100] ^= 16


def zero(stored, at):
    stored[at : at + 4096] = bytes(4096)


def test_the_installed_version_is_supported():
    found = subprocess.run(
        [FOLDER / "vt/bin/python", "-c", "import importlib.metadata as m; print(m.version('sglang'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert found in SUPPORTED_VERSIONS


def test_warm_after_kill_9(scratch, expected, stored):
    with Engine(FOLDER, scratch, cairn_config(stored)) as engine:
        tokens, from_storage = engine.generate(PROMPTS)
        assert tokens == expected
        assert from_storage > sum(map(len, PROMPTS)) / 2, engine.log()[-3000:]


# One page in eight is damaged, or all are: then Cairn takes the disk out of use for a while.
@pytest.mark.parametrize("change, share", [(flip, 0.125), (zero, 1)])
def test_damage_never_reaches_a_token(scratch, expected, stored, change, share):
    path = damaged_copy(stored, f"{change.__name__}-{share}", change, share)
    with Engine(FOLDER, scratch, cairn_config(path)) as engine:
        tokens, from_storage = engine.generate(PROMPTS)
        assert tokens == expected
        assert "wrong bytes" in engine.log()
        assert from_storage == 0 if share == 1 else from_storage > 0
        for _ in range(5):  # what was computed again is stored again, as far as the damage was found
            engine.flush()
            tokens, from_storage = engine.generate(PROMPTS)
            assert tokens == expected
        if share < 1:
            assert from_storage > sum(map(len, PROMPTS)) / 2


# That the tests above can fail: the same damage in SGLang's own storage, which verifies nothing, changes tokens.
def test_damage_reaches_tokens_without_verification(scratch, expected):
    folder = scratch / "files"
    environment = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(folder)}
    with Engine(FOLDER, scratch, {"prefetch_threshold": 16}, environment, backend="file") as engine:
        assert engine.generate(PROMPTS)[0] == expected
        engine.flush()
        files = list(Path(folder).rglob("*.bin"))
        assert files
        for file in files:
            file.write_bytes(bytes(file.stat().st_size))
        tokens, from_storage = engine.generate(PROMPTS)
        assert from_storage > 0
        assert tokens != expected


@pytest.mark.parametrize("page_size, layout", [(8, "page_first_direct"), (32, "layer_first")])
def test_page_sizes_layouts_and_injected_faults(scratch, expected, page_size, layout):
    faults = {
        "SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE": "0.3",
        "SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY": "0.05",
    }
    path = scratch / f"blocks-{page_size}"
    with Engine(FOLDER, scratch, cairn_config(path), faults, page_size=page_size, hicache_mem_layout=layout) as engine:
        in_all = 0
        for _ in range(4):
            tokens, from_storage = engine.generate(PROMPTS)
            assert tokens == expected
            in_all += from_storage
            engine.flush()
        assert in_all > 0


def test_two_tensor_parallel_ranks(scratch):
    path = scratch / "blocks-tp"
    with Engine(FOLDER, scratch, cairn_config(path), {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}, tp_size=2) as engine:
        cold, _ = engine.generate(PROMPTS)  # sums of two ranks are rounded differently from those of one
        engine.flush()
        warm, from_storage = engine.generate(PROMPTS)
    assert warm == cold
    assert from_storage > sum(map(len, PROMPTS)) / 2
    assert {file.name for file in scratch.glob("blocks-tp.*")} >= {"blocks-tp.tp0of2", "blocks-tp.tp1of2"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_mla(scratch, ranks):
    """All ranks have the same latents: rank 0 stores them, in one file, and the other rank gets them from it."""
    model = {"model_path": str(FOLDER / "mla"), "tp_size": ranks}
    threads = {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(map(str, range(ranks)))}
    with Engine(FOLDER, scratch, None, threads, disable_radix_cache=True, **model) as engine:
        expected, _ = engine.generate(PROMPTS)
    path = scratch / f"blocks-mla-{ranks}"
    with Engine(FOLDER, scratch, cairn_config(path), threads, **model) as engine:
        assert engine.generate(PROMPTS)[0] == expected, "cold"
        engine.flush()
        engine.kill()
    with Engine(FOLDER, scratch, cairn_config(path), threads, **model) as engine:
        tokens, from_storage = engine.generate(PROMPTS)
        assert tokens == expected, "warm"
        assert from_storage > sum(map(len, PROMPTS)) / 2, engine.log()[-3000:]
    assert [file.name for file in scratch.glob(f"{path.name}*")] == [path.name]


def test_an_unsupported_configuration_ends_the_start_with_one_line(scratch):
    extra = cairn_config(scratch / "never")
    del extra["interface_v1"]
    with pytest.raises(RuntimeError, match='add "interface_v1": 1'):
        Engine(FOLDER, scratch, extra)
