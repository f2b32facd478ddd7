"""Runs cairn_llama several times on one file and compares the tokens: check.py CAIRN_LLAMA"""

import subprocess
import sys
import tempfile
from pathlib import Path

import make_gguf


def run(program, model, file, length):
    done = subprocess.run([program, model, file, str(length)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.split()[0]


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        model, file = Path(folder, "tiny.gguf"), Path(folder, "sequences")
        make_gguf.main(model)
        first, how = run(program, model, file, 400)
        assert how == "computed" and len(set(first)) > 2, (how, first)
        assert run(program, model, file, 400) == (first, "restored")
        other, how = run(program, model, file, 300)
        assert how == "computed" and other != first, "another prompt has a state of its own"
        assert run(program, model, file, 400) == (first, "restored")

        stored = bytearray(file.read_bytes())
        for at in range(2 << 20, len(stored), 65536):
            stored[at + 1000] ^= 1
        file.write_bytes(stored)
        assert run(program, model, file, 400) == (first, "computed"), "damaged pieces are not used"
        assert run(program, model, file, 400) == (first, "restored"), "and were stored again"
    print("the same tokens, computed, restored and after damage")


if __name__ == "__main__":
    main(sys.argv[1])
