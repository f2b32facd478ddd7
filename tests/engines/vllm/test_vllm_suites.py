"""vLLM's own suites of KV connectors on the engine's side, with CairnConnector: vllm_suites.py says how."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from engine import MODELS

SUITES = {
    "kv_load_failure_recovery": 14,
    "invalid_blocks_correctness": 3,
    "error_propagation": 2,
    "cache_pollution_prevention": 1,
    "kv_connector_lifecycle": 1,
    "output_aggregator": 2,
    "scheduler_kv_connector_override": 3,
    "hma_auto_config": 5,
}


def test_suites_of_vllm_pass(tmp_path):
    report = tmp_path / "report.xml"
    files = [f"tests/v1/kv_connector/unit/test_{name}.py" for name in SUITES]
    environment = {**os.environ, "PYTHONPATH": f"{MODELS / 'suites'}:{Path(__file__).parent}"}
    environment["SUITES_MODEL"] = str(MODELS / "tiny")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "vllm_suites", f"--junit-xml={report}", *files],
        cwd=MODELS / "suites", env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    passed = dict.fromkeys(SUITES, 0)
    for case in ElementTree.parse(report).iter("testcase"):
        assert case.find("skipped") is None, case.attrib
        passed[case.get("classname").rsplit(".test_", 1)[1]] += 1
    assert passed == SUITES
