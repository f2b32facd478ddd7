#!/usr/bin/env python3
"""Opens the live page of `cairn serve` in a real browser and checks it: dashboard_browser_test.py CAIRN

The page forbids scripts that are not the server's, so a proxy in this process adds dashboard_probe.js to it and passes all else on.
Without a browser the exit status is 77.
"""

import html
import http.server
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from serve_testing import PATIENCE, Server, wait_until

CAIRN = None
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
PROBE = Path(__file__).with_name("dashboard_probe.js").read_text(encoding="utf-8")
EVIL = "a<b id='evil'>&\"blocks\""


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to `address`; the page gets the probe."""

    def __init__(self, address):
        self.behind = address
        super().__init__(("127.0.0.1", 0), Passing)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/probe.js":
            self.answer(200, {"Content-Type": "text/javascript"}, PROBE.encode())
            return
        try:
            with urllib.request.urlopen(f"http://{self.server.behind}{self.path}", timeout=PATIENCE) as response:
                status, headers, body = response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            status, headers, body = error.code, error.headers, error.read()
        if self.path == "/":
            assert body.count(b"</body>") == 1
            body = body.replace(b"</body>", b'<script src="/probe.js"></script></body>')
        kept = {name: headers[name] for name in ("Content-Type", "Content-Security-Policy") if headers[name]}
        self.answer(status, kept, body)

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def visit(server, width=1300, dark=False):
    with Proxy(server.address) as proxy, tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={width},1000",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=9000", "--dump-dom",
             f"http://127.0.0.1:{proxy.server_port}/"],
            capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE)
        proxy.shutdown()
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr + done.stdout[:2000]
    return json.loads(html.unescape(found.group(1))), re.findall(r"CONSOLE.*", done.stderr)


def luminance(colour):
    channels = [float(c) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    """Contrast ratio as in the WCAG, which requires 4.5 for text and 3 for graphics."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(CAIRN, "--demo")
        cls.addClassCleanup(cls.server.__exit__)
        wait_until(lambda: len(cls.server.json("/v1/history")["rows"]) >= 3)

    def check(self, saw, console):
        self.assertEqual(console, [])
        self.assertEqual(saw["markup"], 0)
        self.assertLessEqual(saw["needed"], saw["width"], "the page is wider than the window")
        self.assertTrue(all("//127.0.0.1:" in one or one.startswith("data:") for one in saw["resources"]), saw["resources"])
        for text in ("ink", "soft"):
            self.assertGreaterEqual(contrast(saw[text], saw["paper"]), 4.5)

    def check_demo(self, saw):
        self.assertEqual((saw["state"], saw["stateLook"]), ("ready", "state good"))
        self.assertEqual([chart["title"] for chart in saw["charts"]],
                         ["Hit ratio by tier", "Throughput by direction", "Queues", "Load time"])
        for chart in saw["charts"]:
            with self.subTest(chart=chart["title"]):
                self.assertNotIn("empty", chart)
                self.assertEqual(chart["name"], chart["title"])
                self.assertTrue(any(series["box"][0] > 20 for series in chart["series"]), chart)
                for series in chart["series"]:
                    self.assertGreaterEqual(contrast(series["colour"], saw["card"]), 3)
                self.assertEqual(len(chart["ticks"]), 10)
                self.assertEqual(chart["legend"], len(chart["series"]))
                self.assertTrue(chart["shown"] and chart["inside"] and chart["left"])
                self.assertEqual(len(chart["lines"]), len(chart["series"]))
        figures = {figure[0]: figure[1] for figure in saw["figures"]}
        self.assertEqual(set(figures), {"Hit ratio", "Loads", "Load time, p99", "Moving", "Incidents"})
        self.assertRegex(figures["Hit ratio"], r"^[\d.]+ %$")
        self.assertRegex(figures["Load time, p99"], r"^[\d.]+ (µs|ms|s)$")
        self.assertEqual([tier["name"].split("\n")[0] for tier in saw["tiers"]], ["Device (G1)", "Host (G2)", "Disk (G3)"])
        self.assertTrue(all(tier["width"] > 0 for tier in saw["tiers"]))
        tables = saw["tables"]
        self.assertEqual([row[0] for row in tables["tenants"]["rows"]], ["(default)", "gold", "silver"])
        self.assertGreaterEqual(len(tables["links"]["rows"]), 4)
        self.assertGreater(len(tables["operations"]["rows"]), 1)
        self.assertGreater(len(tables["prefixes"]["rows"]), 0)
        self.assertEqual(tables["incidents"]["rows"], [])

    def test_on_a_desk(self):
        saw, console = visit(self.server)
        self.check(saw, console)
        self.check_demo(saw)
        self.assertFalse(saw["dark"])

    def test_on_a_phone_in_the_dark(self):
        saw, console = visit(self.server, width=500, dark=True)
        self.check(saw, console)
        self.check_demo(saw)
        self.assertTrue(saw["dark"])
        self.assertLess(luminance(saw["paper"]), 0.1)

    def test_incidents_with_advice_and_names_that_are_no_markup(self):
        with tempfile.TemporaryDirectory() as folder:
            tiers = ["--set", "model.layers=2", "--set", "model.heads=2", "--set", "model.head_size=64",
                     "--set", "disk.blocks=64", "--set", "disk.direct=false", "--set", f"disk.path={folder}/{EVIL}"]
            with Server(CAIRN, *tiers) as first:
                first.stop(signal.SIGKILL)
            with Server(CAIRN, *tiers) as server:
                saw, console = visit(server)
        self.check(saw, console)
        rows = saw["tables"]["incidents"]["rows"]
        self.assertEqual(len(rows), 1)
        self.assertIn("started unclean", rows[0][1])
        self.assertIn("SIGTERM", rows[0][1])
        self.assertTrue(saw["tables"]["tenants"]["hidden"])
        self.assertEqual({figure[0]: figure[1] for figure in saw["figures"]}["Hit ratio"], "–")


if __name__ == "__main__":
    if BROWSER is None:
        print("no browser; install chromium-headless-shell")
        sys.exit(77)
    CAIRN = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
