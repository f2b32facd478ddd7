#!/usr/bin/env python3
"""`cairn serve`, `ctl` and `top` as processes: serve_process_test.py CAIRN ROOT"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

from serve_testing import ENVIRONMENT, PATIENCE, TOKEN, Server, wait_until

CAIRN = None
ROOT = None
SMALL = ["--set", "model.layers=2", "--set", "model.heads=2", "--set", "model.head_size=64", "--set", "disk.blocks=64",
         "--set", "disk.direct=false"]


def run(*arguments, status=0, **options):
    options = {"env": ENVIRONMENT, **options}
    done = subprocess.run([CAIRN, *arguments], capture_output=True, encoding="utf-8", timeout=PATIENCE, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if status == 0 else done.stderr


class Demo(unittest.TestCase):
    """One demo for all."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(CAIRN, "--demo")
        cls.addClassCleanup(cls.server.__exit__)
        cls.here = ["--address", cls.server.address]

    def ctl(self, *words, status=0, token=TOKEN, **options):
        environment = {**ENVIRONMENT, "CAIRN_HTTP_TOKEN": token}
        return run("ctl", *self.here, *words, status=status, env=environment, **options)

    def test_there_is_something_to_see(self):
        def tokens():
            total = self.server.json("/v1/status")["tokens"]["total"]
            return total if total["device"] and total["loaded_host"] else None
        total = wait_until(tokens)
        self.assertEqual(total["asked"], total["device"] + total["loaded_host"] + total["loaded_disk"] + total["computed"])
        wait_until(lambda: self.server.json("/v1/prefixes")["prefixes"])
        wait_until(lambda: len(self.server.json("/v1/history")["rows"]) >= 2)
        tenants = {tenant["name"] for tenant in self.server.json("/v1/status")["tokens"]["tenants"]}
        self.assertEqual(tenants, {"", "gold", "silver"})

    def test_ctl_reads(self):
        self.assertIn("Cairn worker", self.ctl("status"))
        self.assertEqual(json.loads(self.ctl("status", "--json"))["worker_id"], 0)
        self.assertIn("ready", self.ctl("ready"))
        self.assertIn("No incidents", self.ctl("incidents"))
        self.assertIn("cairn_blocks_free", self.ctl("metrics"))
        self.assertIn("cairn_load_seconds", self.ctl("times"))
        self.assertIn("sequences", self.ctl("prefixes", "3"))
        self.assertIn("events", json.loads(self.ctl("events")))

    def test_ctl_changes(self):
        self.ctl("pause", "host", "disk")
        links = {link["from"] + link["to"]: link for link in self.server.json("/v1/status")["links"]}
        self.assertTrue(links["G2G3"]["is_paused"])
        self.ctl("resume", "host", "disk")
        self.assertIn("blocks", self.ctl("resize", "2900"))
        self.assertIn("reset", self.ctl("reset", "disk"))
        self.assertEqual(json.loads(self.ctl("lookup", "--json", input="[1, 2, 3]"))["found"], 0)
        self.ctl("log", "warning")

    def test_ctl_says_what_is_wrong(self):
        self.assertIn("token is wrong", self.ctl("reset", "disk", status=1, token="another-token-of-16"))
        self.assertIn("Authorization", self.ctl("reset", "disk", status=1, token=""))
        self.assertIn("device (G1), host (G2), disk (G3), remote (G4)", self.ctl("reset", "dsik", status=2))
        self.assertIn("cairn ctl pause FROM TO", self.ctl("pause", "host", status=2))
        self.assertIn("unknown action 'stauts'", self.ctl("stauts", status=2))
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            said = run("ctl", "status", "--address", f"127.0.0.1:{nobody.getsockname()[1]}", status=1)
        self.assertIn("http.listen", said)
        self.assertIn("127.0.0.1:9470", run("ctl", "status", "--address", "nonsense", status=2))

    def test_top_without_a_terminal_is_one_snapshot(self):
        for arguments in (["--once"], []):
            shown = run("top", *self.here, *arguments, stdin=subprocess.DEVNULL)
            self.assertRegex(shown, r"host +[█░]+ +\d+ %")
            self.assertIn("G1-G2", shown)
        self.assertEqual(set(json.loads(run("top", *self.here, "--json"))), {"status", "times"})

    def test_top_follows_the_window_and_quits(self):
        leader, follower = pty.openpty()

        def resize(rows, columns):
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        resize(40, 100)
        top = subprocess.Popen([CAIRN, "top", *self.here, "--seconds", "0.1"], stdin=follower, stdout=follower)
        self.addCleanup(lambda: top.poll() is None and (top.kill(), top.wait()))
        seen = b""

        def read_until(pattern):
            nonlocal seen
            while not re.search(pattern, seen, re.DOTALL):
                part = os.read(leader, 65536)
                assert part, seen
                seen += part

        def widest(frame):
            lines = re.sub(rb"\x1b\[[?\d]*[A-Za-z]", b"", frame).decode(errors="ignore").split("\n")
            return max(len(line.rstrip("\r")) for line in lines), len(lines)

        read_until(rb"\x1b\[\?1049h.*\x1b\[H.*q quits.*\x1b\[H.*q quits")
        self.assertGreater(widest(seen.split(b"\x1b[H")[1])[0], 60)
        resize(8, 40)
        seen = b""
        read_until(rb"(\x1b\[H.*q quits.*){3}\x1b\[H")
        frame = seen.split(b"\x1b[H")[-2]
        self.assertLessEqual(widest(frame)[0], 40)
        self.assertLessEqual(widest(frame)[1], 8)
        os.write(leader, b"q")
        read_until(rb"\x1b\[\?1049l")
        self.assertEqual(top.wait(PATIENCE), 0)

    @unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
    def test_top_in_tmux(self):
        with tempfile.TemporaryDirectory() as folder:
            def tmux(*words):
                return subprocess.run(["tmux", "-S", f"{folder}/socket", "-f", "/dev/null", *words], check=True,
                                      capture_output=True, encoding="utf-8", timeout=PATIENCE,
                                      env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "screen"}).stdout
            tmux("-u", "new-session", "-d", "-x", "90", "-y", "30",
                 f"{CAIRN} top --address {self.server.address} --seconds 0.2; echo it ended; cat")
            try:
                screen = lambda: tmux("capture-pane", "-p")
                wait_until(lambda: "q quits" in screen() and "G1-G2" in screen())
                tmux("resize-window", "-x", "50", "-y", "10")
                wait_until(lambda: len(screen().splitlines()) <= 10 and "q quits" in screen())
                tmux("send-keys", "q")
                wait_until(lambda: "it ended" in screen())
            finally:
                tmux("kill-server")


class Serve(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tiers = [*SMALL, "--set", f"disk.path={self.folder.name}/blocks"]

    def test_stops_in_order_on_sigterm_and_tells_systemd(self):
        path = f"{self.folder.name}/notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(path)
            systemd.settimeout(PATIENCE)
            with Server(CAIRN, *self.tiers, "--set", "log.format=json", environment={"NOTIFY_SOCKET": path}) as server:
                self.assertEqual(systemd.recv(100), b"READY=1")
                self.assertEqual(server.json("/readyz"), {"ready": True, "reasons": []})
                status, log = server.stop()
                self.assertEqual(systemd.recv(100), b"STOPPING=1")
        self.assertEqual(status, 0, log)
        self.assertEqual([json.loads(line)["message"] for line in log.splitlines()],
                         ["ready", "shutting down; waiting for copies in flight"])

    def test_an_unclean_stop_is_an_incident_with_advice(self):
        with Server(CAIRN, *self.tiers) as server:
            server.stop(signal.SIGKILL)
        with Server(CAIRN, *self.tiers) as server:
            incidents = server.json("/v1/incidents")["incidents"]
            self.assertEqual([one["kind"] for one in incidents], ["started unclean"])
            self.assertIn("SIGTERM", incidents[0]["advice"])
            self.assertIn("started unclean", run("ctl", "incidents", "--address", server.address))
            _, log = server.stop()
        self.assertIn('kind="started unclean"', log)

    def test_the_device_tier_is_left_out(self):
        with Server(CAIRN, *self.tiers, "--set", "device.size=1GiB", "--set", "host.blocks=8") as server:
            self.assertEqual([tier["level"] for tier in server.json("/v1/status")["tiers"]], ["G2", "G3"])

    def test_mistakes_are_named(self):
        self.assertIn("host.size or disk.size", run("serve", *SMALL[:6], status=2))
        self.assertIn("http.token_file", run("serve", *self.tiers, "--set", "http.listen=0.0.0.0:0", status=2))
        self.assertIn("did you mean http.listen", run("serve", "--set", "http.lsiten=1", status=2))

    def test_the_example_of_the_unit_is_a_configuration(self):
        said = run("config", "--file", str(ROOT / "deploy/systemd/cairn.toml"))
        self.assertIn("127.0.0.1:9470", said)


class Metrics(unittest.TestCase):
    """What Prometheus and Grafana are given names metrics that there are."""

    @classmethod
    def setUpClass(cls):
        with Server(CAIRN, "--demo", "--engines", "1", "--set", "disk.scrub_rate=1MB") as server:
            wait_until(lambda: server.json("/v1/status")["onboard"]["finished"])
            cls.metrics = server.get("/metrics")
        cls.names = set(re.findall(r"^(cairn_\w+)", cls.metrics, re.MULTILINE))

    def check_names(self, text):
        used = set(re.findall(r"\bcairn_\w+", text))
        self.assertGreater(len(used), 5)
        self.assertEqual(used - self.names, set())

    def test_alerts(self):
        self.check_names((ROOT / "deploy/prometheus/cairn-alerts.yml").read_text())

    def test_grafana(self):
        text = (ROOT / "deploy/grafana/cairn.json").read_text()
        self.check_names(text)
        panels = json.loads(text)["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed (package prometheus)")
    def test_promtool(self):
        subprocess.run(["promtool", "check", "rules", ROOT / "deploy/prometheus/cairn-alerts.yml"], check=True,
                       capture_output=True)
        rules = [target["expr"].replace("$instance", ".*")
                 for panel in json.loads((ROOT / "deploy/grafana/cairn.json").read_text())["panels"]
                 for target in panel["targets"]]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            # The expressions of the panels, as rules that promtool reads; JSON is YAML.
            json.dump({"groups": [{"name": "panels", "rules": [
                {"record": f"panel:{i}", "expr": expression} for i, expression in enumerate(rules)]}]}, file)
            file.flush()
            subprocess.run(["promtool", "check", "rules", file.name], check=True, capture_output=True)
        done = subprocess.run(["promtool", "check", "metrics"], input=self.metrics, capture_output=True, encoding="utf-8")
        self.assertNotIn("error", done.stderr.lower(), done.stderr)


if __name__ == "__main__":
    CAIRN, ROOT = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
