"""vLLM's server as docs/vllm.md starts it: its metrics, and a warm restart."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from conftest import PROMPTS
from engine import BLOCK, MODELS

_LIMIT = 900.0  # seconds: a server is up in one to three minutes on two cores that have nothing else to do


class Server:
    """A server in a process group of its own; every wait has a limit."""

    def __init__(self, tmp_path, port, **extra):
        config = {
            "kv_connector": "CairnConnector",
            "kv_connector_module_path": "cairn.vllm",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"onboard.weigh": False, "host.pinning": "off", **extra},
        }
        self.port = port
        self.log = tmp_path / f"log-{time.monotonic_ns()}"
        environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_SERVER_DEV_MODE": "1"}
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODELS / "tiny")]
        command += ["--port", str(port), "--enforce-eager", "--block-size", str(BLOCK), "--max-model-len", "2048"]
        command += ["--kv-transfer-config", json.dumps(config)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self):
        def is_up():
            with contextlib.suppress(OSError):
                self.call("/health")
                return True
            assert self.process.poll() is None, self.log.read_text()[-4000:]

        try:
            self.wait(is_up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        """kill -9 of all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def wait(self, is_true):
        deadline = time.monotonic() + _LIMIT
        while not is_true():
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.5)

    def call(self, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60).read().decode()

    def complete(self, prompt):
        ask = {"model": str(MODELS / "tiny"), "prompt": prompt, "max_tokens": 8, "temperature": 0}
        return json.loads(self.call("/v1/completions", ask))["choices"][0]["text"]

    def value(self, name, label=""):
        lines = [line for line in self.call("/metrics").splitlines() if not line.startswith("#")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name) and label in line)

    def reaches(self, name, label, value):
        """Whether a figure is there; figures come with steps."""
        self.complete(PROMPTS[3])
        return self.value(name, label) >= value


@pytest.fixture
def port():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_metrics_and_a_warm_restart(tmp_path, port):
    settings = {"host.size": "64MiB", "disk.path": str(tmp_path / "kv"), "disk.size": "64MiB"}
    with Server(tmp_path, port, **settings) as server:
        first = server.complete(PROMPTS[0])

        def is_reset():
            request = urllib.request.Request(f"http://127.0.0.1:{port}/reset_prefix_cache", b"")
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(request, timeout=60).status == 200

        server.wait(is_reset)
        assert server.complete(PROMPTS[0]) == first
        server.wait(lambda: server.reaches("vllm:cairn_prompt_tokens_total", 'source="host"', 384))
        assert server.value("vllm:cairn_stored_blocks", 'tier="host"') >= 12
        assert server.value("vllm:prompt_tokens_cached_by_source_total", 'source="host"') == 384
        assert server.value("vllm:external_prefix_cache_hits_total") == 384
        server.wait(lambda: server.reaches("vllm:cairn_stored_blocks", 'tier="disk"', 12))
    with Server(tmp_path, port, **settings) as server:
        assert server.complete(PROMPTS[0]) == first
        server.wait(lambda: server.reaches("vllm:cairn_prompt_tokens_total", 'source="disk"', 384))
        assert server.value("vllm:prompt_tokens_cached_by_source_total", 'source="disk"') == 384
