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
    assert findings[f"disk {tmp_path}"]["facts"]["read_gb_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_prints_for_people():
    text = run("doctor")
    assert text.startswith("cairn ") and "locked memory" in text
    assert "\033" not in text


def test_a_folder_that_is_not_there_is_a_finding(tmp_path):
    finding = doctor._disk(str(tmp_path / "missing"))
    assert finding.state == "missing" and "cannot make a file" in finding.found


def test_the_command_runs():
    assert "hitrate" in run("--help")
    assert run("--version").strip() == cairn.__version__
