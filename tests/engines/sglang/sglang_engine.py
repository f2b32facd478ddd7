"""Starts real SGLang engines for test_sglang_*.py and talks to them.

The folder `sglang` of ENGINES_FOLDER is one that tests/engines/install/sglang.sh made. The engines import the package `cairn` of the Python that
runs the tests, which has to be of the same version as SGLang's.
"""

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

START = 400  # seconds: an engine is up in one to two minutes on two cores
ANSWER = 240


def installation():
    """The folder of the installation, or why the tests cannot run."""
    folder = Path(os.environ.get("ENGINES_FOLDER", "build/engines")).resolve() / "sglang"
    python = folder / "vt/bin/python"
    if not python.exists():
        return None, f"{python} is missing; tests/engines/install/sglang.sh {folder} installs it"
    version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    if version.stdout.split() != [str(part) for part in sys.version_info[:2]]:
        return None, f"SGLang's Python is {version.stdout.strip()}, that of the tests {sys.version_info[:2]}"
    return folder, ""


def package_path(folder):
    """A folder to put on PYTHONPATH: the package under test and what it needs, and nothing else of this Python's."""
    import cairn
    import nanobind_backend

    for module in (cairn, nanobind_backend):
        source = Path(module.__file__)
        source = source.parent if source.name == "__init__.py" else source
        link = Path(folder) / source.name
        if not link.exists():
            link.symlink_to(source)
    return str(folder)


def cairn_config(path, **settings):
    """The extra config of SGLang for a file of Cairn's."""
    return {
        "backend_name": "cairn",
        "module_path": "cairn.sglang",
        "class_name": "CairnStorage",
        "interface_v1": 1,
        "prefetch_threshold": 16,
        "disk.path": str(path),
        "disk.size": "64MiB",
        **settings,
    }


def prompts(count, seed, shared=6, longest=400):
    """Random prompts, of which groups of `shared` begin alike."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        if i % shared == 0:
            prefix = [chance.randrange(3, 1024) for _ in range(chance.randrange(64, longest // 2))]
        rest = [chance.randrange(3, 1024) for _ in range(chance.randrange(40, longest // 2))]
        made.append(prefix + rest)
    return made


class Engine:
    """One engine in a process group of its own. Every wait has a limit."""

    def __init__(self, folder, scratch, extra_config=None, environment=None, backend="dynamic", **arguments):
        self.log_path = Path(scratch) / f"engine-{time.monotonic_ns()}.log"
        packages = Path(scratch) / "packages"
        packages.mkdir(exist_ok=True)
        arguments = {"model_path": str(folder / "tiny"), "page_size": 16, **arguments}
        if extra_config is not None:
            arguments.update(
                enable_hierarchical_cache=True,
                hicache_storage_backend=backend,
                hicache_storage_backend_extra_config=json.dumps(extra_config),
            )
        driver = Path(__file__).with_name("sglang_driver.py")
        script = f'. "{folder}/env.sh"; export PYTHONPATH="{package_path(packages)}"; exec python "$0" "$1"'
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", script, str(driver), json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._answer(START)

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                self.answers.put(json.loads(line[len("ANSWER ") :]))
        self.answers.put(None)

    def _answer(self, limit):
        try:
            answer = self.answers.get(timeout=limit)
        except queue.Empty:
            answer = None
        if answer is None:
            self.kill()
            raise RuntimeError(f"the engine did not answer within {limit} s or ended:\n{self.log()[-6000:]}")
        return answer

    def _ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer(ANSWER)

    def generate(self, prompts):
        """The tokens of each prompt, and how many tokens came from storage in all."""
        answers = self._ask(generate=prompts)
        return [answer["tokens"] for answer in answers], sum(answer["storage"] for answer in answers)

    def flush(self):
        """Device and host memory forget everything. Waits until the engine is idle, which it refuses before."""
        deadline = time.monotonic() + ANSWER
        while not self._ask(flush=True)["flushed"]:
            assert time.monotonic() < deadline, "the engine does not become idle"

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        self._ask(stop=True)
        self.kill()

    def kill(self):
        """kill -9 of all its processes."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.kill()
