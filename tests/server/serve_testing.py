"""Shared by the tests of `cairn serve`: a server in a process of its own."""

import json
import os
import signal
import subprocess
import time
import urllib.request

TOKEN = "a-token-for-the-tests"
PATIENCE = 60
# Without the variables of ./test: the command takes those that begin with CAIRN_ for keys of its configuration.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}


class Server:
    """`cairn serve` with these arguments, on a port that the system chooses."""

    def __init__(self, cairn, *arguments, environment=None):
        self.process = subprocess.Popen(
            [cairn, "serve", "--json", "--set", "http.listen=127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            env={**ENVIRONMENT, "CAIRN_HTTP_TOKEN": TOKEN, **(environment or {})})
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.address = json.loads(line)["address"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def stop(self, how=signal.SIGTERM):
        """(exit status, standard error)"""
        self.process.send_signal(how)
        _, log = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, log

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=PATIENCE) as response:
            return response.read().decode()

    def json(self, path):
        return json.loads(self.get(path))


def wait_until(what):
    """The first true value of what(); fails after a while."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")
