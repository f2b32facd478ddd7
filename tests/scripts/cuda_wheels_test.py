#!/usr/bin/env python3
"""The CUDA compiler is installed only from wheels whose hashes are in scripts/cuda-wheels.txt."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^([a-z0-9-]+)==([0-9]+(?:\.[0-9]+)+)((?: --hash=sha256:[0-9a-f]{64})+)$")

# A fake python3 that records its arguments and creates the folder that pip would create.
PYTHON = """#!/bin/bash
printf '%s\\n' "$@" >asked
mkdir -p build/cuda.part
"""


class CudaWheels(unittest.TestCase):
    def test_every_wheel_is_pinned_for_both_machines(self):
        text = (ROOT / "scripts" / "cuda-wheels.txt").read_text(encoding="utf-8").replace("\\\n", "")
        lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if not line.startswith("#")]
        names = []
        for line in lines:
            match = PINNED.match(line)
            self.assertTrue(match, line)
            names.append(match.group(1))
            self.assertEqual(match.group(2).split(".")[:2], ["13", "0"], line)
            self.assertEqual(len(set(match.group(3).split())), 2, "one hash for x86_64 and one for aarch64: " + line)
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("nvidia-cuda-nvcc", names)

    @unittest.skipIf(os.path.exists("/usr/local/cuda/bin/nvcc"), "this machine's own nvcc is used")
    def test_setup_takes_only_wheels_of_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            tools = Path(folder, "tools")
            tools.mkdir()
            Path(tools, "python3").write_text(PYTHON, encoding="utf-8")
            Path(tools, "python3").chmod(0o755)
            for name in ("bash", "rm", "mv", "mkdir", "dirname", "cat", "nproc"):
                Path(tools, name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
            done = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/setup.sh; cairn_fetch_nvcc"], cwd=folder,
                                  env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            asked = Path(folder, "asked").read_text(encoding="utf-8").split()
            self.assertIn("--require-hashes", asked)
            self.assertIn("--no-deps", asked)
            self.assertEqual(asked[asked.index("--only-binary") + 1], ":all:")
            self.assertEqual(asked[asked.index("--requirement") + 1], "scripts/cuda-wheels.txt")
            self.assertFalse([word for word in asked if "==" in word or word.startswith("nvidia")])
            self.assertTrue(Path(folder, "build", "cuda").is_dir())


if __name__ == "__main__":
    sys.exit(unittest.main())
