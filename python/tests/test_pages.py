"""The examples, and the code that the documents show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks_of(page):
    """The blocks of a page that are marked `python`, as one program: a later block goes on where the one before ended.
    Blocks that are marked `py` show calls of a larger program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks_of(page)
    assert code
    exec(compile(code, page, "exec"), {"__name__": "page", "prompt": list(range(1000))})


def test_hitrate_plot(tmp_path):
    words = [sys.executable, str(ROOT / "examples/python/hitrate_plot.py"), "--requests", "200", "--out", str(tmp_path / "c.png")]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^lru +0\.\d+", text, re.MULTILINE) and "the best: " in text
    assert (tmp_path / "c.png").exists() or "matplotlib is not installed" in text
