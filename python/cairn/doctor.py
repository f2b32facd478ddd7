"""What the machine offers to Cairn, and how to fix what is missing: `python -m cairn doctor`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from . import __version__
from ._cairn import Error, _probe_disk, _probe_gpus, _probe_io_uring, _probe_lock, _probe_memory

__all__ = ["Finding", "examine", "main"]

OK, SLOW, MISSING = "ok", "slow", "missing"
LOCKED_BYTES = 64 << 20  # a test: enough to show that a limit is not the default of 8 MiB
MOST_DISK_BYTES = 256 << 20
MOST_DISK_SECONDS = 2.0  # for writing, and again for reading


@dataclass
class Finding:
    """One thing that Cairn uses: whether it is there, what was found, and what to do if not."""

    name: str
    state: str  # "ok"; "slow": Cairn works without it; "missing": a feature is not available
    found: str
    fix: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def _bytes(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def _gpu() -> Finding:
    facts = _probe_gpus()
    if "error" in facts:
        fix = "needed for GPU memory only: install NVIDIA's driver; in a container, start it with the GPUs (--gpus all)"
        return Finding("GPU", MISSING, facts["error"], fix, facts)
    names = [f"{gpu['name']} (compute {gpu['compute_capability']})" for gpu in facts["gpus"]]
    found = f"{len(names)} x {names[0]}" if len(set(names)) == 1 else ", ".join(names)
    if not facts["kernels"]:
        fix = "this package was built without nvcc and cannot copy to a GPU: install a wheel, or build it where there is nvcc"
        return Finding("GPU", MISSING, f"{found}, but the package has no kernels for it", fix, facts)
    if int(facts["cuda"].split(".")[0]) < 13:
        fix = "a driver for CUDA 13 copies many blocks with one call; with an older one Cairn uses its own kernel"
        return Finding("GPU", SLOW, f"{found}, driver for CUDA {facts['cuda']}", fix, facts)
    return Finding("GPU", OK, f"{found}, driver for CUDA {facts['cuda']}", "", facts)


def _memory(facts: dict[str, Any]) -> Finding:
    return Finding("memory", OK, f"{_bytes(facts['available_bytes'])} available ({facts['limit'] or 'no limit'})", "", facts)


def _pinning() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    facts = {"soft_bytes": soft, "hard_bytes": hard}
    refused = _probe_lock(LOCKED_BYTES)
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"limit {_bytes(soft)}"
    if refused:
        fix = (
            "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity of a systemd service, `--ulimit memlock=-1` of a "
            "container. Pinned memory that a GPU uses is locked by the driver and does not count"
        )
        return Finding("locked memory", MISSING, refused, fix, facts)
    return Finding("locked memory", OK, limit, "", facts)


def _huge_pages(facts: dict[str, Any]) -> Finding:
    free = facts["huge_pages_free_2M"] * (2 << 20) + facts["huge_pages_free_1G"] * (1 << 30)
    if free:
        return Finding("huge pages", OK, f"{_bytes(free)} reserved and free")
    if facts["transparent_huge_pages"]:
        fix = "for a large host tier, reserve some: `sysctl vm.nr_hugepages=N` (2 MiB each)"
        return Finding("huge pages", OK, "transparent ones; none reserved", fix)
    fix = "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, or reserve some: `sysctl vm.nr_hugepages=N`"
    return Finding("huge pages", SLOW, "none: transparent ones are off, and none are reserved", fix)


def _numa(facts: dict[str, Any]) -> Finding:
    nodes = facts["numa_nodes"]
    if len(nodes) == 1:
        return Finding("NUMA", OK, "one node")
    return Finding("NUMA", OK, f"nodes {', '.join(map(str, nodes))}: Cairn places host memory near its GPU")


def _io_uring() -> Finding:
    works, text = _probe_io_uring()
    if works:
        return Finding("io_uring", OK, text)
    fix = (
        "Cairn reads and writes by threads instead. Allow it: `sysctl kernel.io_uring_disabled=0` on the host, and a "
        "seccomp profile of the container that has io_uring_setup, io_uring_enter and io_uring_register; Linux 6.1 or later"
    )
    return Finding("io_uring", SLOW, text, fix)


def _disk(path: str) -> Finding:
    name = f"disk {path}"
    try:
        facts = _probe_disk(path, MOST_DISK_BYTES, MOST_DISK_SECONDS)
    except Error as error:
        return Finding(name, MISSING, str(error), "give a folder that exists, can be written, and has 256 MiB of room")
    speed = f"writes {facts['write_gb_per_s']:.2f} GB/s, reads {facts['read_gb_per_s']:.2f} GB/s"
    if not facts["direct_io"]:
        fix = "use ext4 or XFS on a local disk: without direct I/O, blocks are cached twice"
        return Finding(name, SLOW, f"no direct I/O: {facts['direct_io_why_not']}; {speed} with the page cache", fix, facts)
    return Finding(name, OK, f"direct I/O (aligned to {facts['direct_io_alignment']}), {speed}", "", facts)


def _nixl() -> Finding:
    from importlib.util import find_spec

    for package in ("nixl", "nixl_cu12", "nixl_cu13"):
        if find_spec(package) is not None:
            return Finding("NIXL", OK, f"package {package}")
    return Finding("NIXL", MISSING, "no package", "needed for transfers between machines only: `pip install nixl`")


def examine(path: str | None = None) -> list[Finding]:
    """Look at the machine. With a `path`, also measure the disk of this folder: 256 MiB, a few seconds at most."""
    memory = _probe_memory()
    findings = [_gpu(), _memory(memory), _pinning(), _huge_pages(memory), _numa(memory), _io_uring()]
    if path is not None:
        findings.append(_disk(path))
    return [*findings, _nixl()]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns 0. What is missing is no error: most of it is optional."""
    parser = argparse.ArgumentParser(prog="python -m cairn doctor", description=__doc__)
    parser.add_argument("path", nargs="?", help="a folder whose disk is measured, such as that of the disk tier")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    options = parser.parse_args(arguments)
    findings = examine(options.path)
    system = {
        "cairn": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    if options.json:
        json.dump({"system": system, "findings": [asdict(finding) for finding in findings]}, sys.stdout, indent=1)
        print()
        return 0
    print(f"cairn {system['cairn']}, Python {system['python']}, Linux {system['kernel']}, {system['libc']}, {system['cpus']} CPUs\n")
    colors = {OK: "\033[32m", SLOW: "\033[33m", MISSING: "\033[31m"} if sys.stdout.isatty() else {}
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = f"{colors.get(finding.state, '')}{finding.state:7}{chr(27) + '[0m' if colors else ''}"
        print(f"  {state}  {finding.name:{width}}  {finding.found}")
        if finding.fix:
            print(f"  {'':7}  {'':{width}}  -> {finding.fix}")
    return 0
