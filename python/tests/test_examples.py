"""Runs the examples as programs."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize("program", [["connector.py"], ["toy_engine.py"], ["async_server.py", "--self-test"]], ids=lambda p: p[0])
def test_example(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / program[0], *program[1:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.strip()
