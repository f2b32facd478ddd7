"""Tests of vLLM's second model runner, with and without asynchronous scheduling: as engines on GPUs run. second_runner.py says how."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from engine import MODELS

HERE = Path(__file__).parent


@pytest.mark.skipif(not (MODELS / "triton").exists(), reason=f"there is no Triton in {MODELS}: tests/engines/install/vllm.sh")
@pytest.mark.parametrize(
    "tests, count",
    [
        (["test_vllm.py::test_warm_tokens_are_the_same", "test_vllm.py::test_chunked_prefill"], 4),
        (["test_vllm_async.py"], 18),
    ],
)
def test_the_second_model_runner(tmp_path, tests, count):
    report = tmp_path / "report.xml"
    environment = {**os.environ, "PYTHONPATH": f"{MODELS / 'triton'}:{HERE}"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "second_runner", f"--junit-xml={report}", *tests],
        cwd=HERE, env=environment, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == count and all(case.find("skipped") is None for case in cases)
