"""`python -m cairn`."""

import json
import subprocess
import sys

import cairn
from cairn import doctor


def run(*words):
    return subprocess.run([sys.executable, "-m", "cairn", *words], check=True, capture_output=True, text=True).stdout


def test_doctor_finds_something_of_everything(tmp_path):
    report = json.loads(run("doctor", "--json", str(tmp_path)))
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert set(findings) == {
        "GPU",
        "memory",
        "locked memory",
        "huge pages",
        "NUMA",
        "io_uring",
        f"disk {tmp_path}",
        "NIXL",
    }
    for finding in findings.values():
        assert finding["found"]
        assert finding["state"] == "ok" or finding["fix"], finding
    assert findings["GPU"]["facts"]["kernels"] in (True, False)
    assert findings[f"disk {tmp_path}"]["facts"]["read_gb_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_prints_for_people():
    text = run("doctor")
    assert text.startswith("cairn ") and "locked memory" in text
    assert "\033" not in text


def test_a_package_without_kernels_is_a_finding(monkeypatch):
    gpu = {"name": "H200", "pci_id": "0", "compute_capability": "9.0", "numa_node": 0}
    facts = {"cuda": "13.0", "gpus": [gpu, gpu], "kernels": False}
    monkeypatch.setattr(doctor, "_probe_gpus", lambda: facts)
    finding = doctor._gpu()
    assert finding.state == "missing" and "no kernels" in finding.found and "nvcc" in finding.fix
    facts["kernels"] = True
    assert doctor._gpu().found == "2 x H200 (compute 9.0), driver for CUDA 13.0"


def test_a_folder_that_is_not_there_is_a_finding(tmp_path):
    finding = doctor._disk(str(tmp_path / "missing"))
    assert finding.state == "missing" and "cannot make a file" in finding.found


def test_the_command_runs():
    assert "hitrate" in run("--help")
    assert run("--version").strip() == cairn.__version__
