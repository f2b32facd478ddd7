"""The types of the package, as type checkers see them, and its docstrings."""

import importlib
import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cairn

SAMPLE = """
import numpy as np
import cairn


def use(pool: cairn.BlockPool) -> int:
    hasher = cairn.KeyHasher("native", secret=bytes(32), model="m", block_size=16)
    keys = cairn.hash_tokens(np.arange(64, dtype=np.uint32), 16, hasher.with_(salt="s"))
    first: cairn.Key = keys[0]
    some: cairn.Keys = keys[1:] + [first]
    position: int = first.position
    words: int = keys.to_numpy().shape[0]
    cairn.hash_tokens([1, 2, 3], 1, parent=first, mm_runs=[cairn.MmRun(0, 1, 7)])
    with pool.match_prefix(keys) as found:
        held: cairn.ImmutableBlocks = found.share()
        ids: list[int] = held.block_ids.tolist()
    try:
        blocks = pool.allocate(len(some)).complete(some).register(cairn.Retention(priority=50))
    except cairn.ExhaustedError as error:
        print(error.code)
        return 0
    again = blocks.downgrade().upgrade()
    sequence = cairn.TokenSequence(range(10), 4)
    begin, end = sequence.extend(np.arange(5))
    rows = cairn.hitrate(cairn.traces.generate("chat", requests=10), policies=["lru"], capacities=["5%", 7])
    ratio: float = rows[0].hit_ratio + cairn.replay("file").hit_ratio
    return position + words + pool.counts.free + begin + end + len(ids) + (again is not None) + int(ratio)
"""

WRONG = """
import cairn

cairn.hash_tokens("text", 16.5)
cairn.BlockPool(16, 4).allocate("one")
cairn.BlockPool(16, 4).match_prefix([1, 2])
cairn.BlockPool(16, 4).allocate(1).register()
"""


def package_folder():
    return Path(cairn.__file__).parent


def mypy(tmp_path, *what):
    """What mypy --strict says. Its cache lies in the virtual environment, because reading numpy's types takes long."""
    pytest.importorskip("mypy")
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\n[mypy-pandas.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
        "[mypy-vllm.*,torch.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
        "[mypy-cairn.vllm.*]\ndisallow_subclassing_any = False\n"  # of classes of vLLM, which is not installed here
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file", config, "--cache-dir", f"{sys.prefix}/mypy-cache"]
    return subprocess.run([*words, *what], capture_output=True, text=True, cwd=tmp_path)


def test_mypy_is_content_with_a_program(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    checked = mypy(tmp_path, "sample.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_mypy_is_content_with_the_package(tmp_path):
    checked = mypy(tmp_path, "-p", "cairn")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_mypy_finds_mistakes(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    found = mypy(tmp_path, "wrong.py").stdout
    for line in (4, 5, 6, 7):
        assert f"wrong.py:{line}: error" in found, found


def test_pyright_is_content(tmp_path):
    pytest.importorskip("pyright")
    (tmp_path / "sample.py").write_text(SAMPLE)
    words = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", tmp_path / "sample.py"]
    checked = subprocess.run(words, capture_output=True, text=True)
    try:
        found = json.loads(checked.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run: {textwrap.shorten(checked.stderr, 200)}")
    assert found == []


def public_names():
    for module in (cairn, *(importlib.import_module(f"cairn.{path.stem}") for path in package_folder().glob("[a-z]*.py"))):
        for name in getattr(module, "__all__", ()):
            yield f"{module.__name__}.{name}", getattr(module, name)


def test_everything_public_has_a_docstring():
    missing = []
    for name, value in public_names():
        if isinstance(value, str):
            continue
        if not inspect.getdoc(value):
            missing.append(name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            for member, function in vars(value).items():
                if not member.startswith("_") and not inspect.getdoc(function):
                    missing.append(f"{name}.{member}")
    assert missing == []


def test_reprs_are_useful():
    pool = cairn.BlockPool(4, 4)
    for value in (pool, pool.counts, pool.allocate(1), cairn.Retention(), cairn.hash_tokens([1], 1), cairn.KeyHasher()):
        assert "cairn." in repr(value) and " object at " not in repr(value)
