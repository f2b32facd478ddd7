#!/usr/bin/env python3
"""Opens the pages that `cairn` writes in a real browser and checks them: page_browser_test.py CAIRN

probe.js, added to a copy of each page, moves the pointer, presses keys, clicks, measures the drawing and leaves its
findings in the document, which the browser prints. The console must stay empty, and nothing may be loaded. Without a
browser the exit status is 77.
"""

import html
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CAIRN = None
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
PROBE = Path(__file__).with_name("probe.js").read_text(encoding="utf-8")
# The name of the trace is shown on the page; it may contain any character of a file name.
EVIL = "a<b id='evil'>&\"trace\".jsonl"
TIME_LIMIT = 60


class Visit:
    """One page in one window: `saw` is what probe.js left, `console` the messages of the browser's console."""

    def __init__(self, page, folder, width=1300, dark=False, more=""):
        copy = Path(folder, "probed.html")
        text = page.read_text(encoding="utf-8")
        assert text.count("</body>") == 1
        copy.write_text(text.replace("</body>", f"{more}<script>{PROBE}</script></body>"), encoding="utf-8")
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={profile}",
                 f"--window-size={width},1000", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                 "--dump-dom", copy.as_uri()],
                capture_output=True, encoding="utf-8", errors="replace", timeout=TIME_LIMIT)
        self.console = re.findall(r"CONSOLE.*", done.stderr)
        found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
        self.saw = json.loads(html.unescape(found.group(1))) if found else None
        self.log = done.stderr


def luminance(colour):
    channels = [float(c) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    """Contrast ratio as in the WCAG, which requires 4.5 for text and 3 for graphics."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.trace = Path(cls.folder.name, EVIL)
        with open(cls.trace, "wb") as out:
            subprocess.run([CAIRN, "trace", "--kind", "agents", "--requests", "400"], stdout=out, check=True)

    def make(self, *arguments):
        page = Path(self.folder.name, "page.html")
        subprocess.run([CAIRN, *arguments, "--html", page], check=True, capture_output=True)
        return page

    def visit(self, page, **options):
        visit = Visit(page, self.folder.name, **options)
        self.assertEqual(visit.console, [])
        self.assertIsNotNone(visit.saw, visit.log)
        return visit.saw

    def check(self, saw, titles):
        """Checks what every page must have."""
        self.assertEqual([chart["title"] for chart in saw["charts"]], titles)
        self.assertEqual([chart["title"] for chart in saw["charts"] if "empty" in chart], [])
        self.assertEqual(saw["live"], str(len(titles)), "the page's own script did not finish")
        self.assertEqual(saw["resources"], [], "something was loaded")
        self.assertEqual(saw["markup"], 0, "the file name became markup")
        self.assertLessEqual(saw["needed"], saw["width"], "the page is wider than the window")
        self.assertGreater(saw["figures"], 0)
        self.assertGreater(saw["tables"], 0)
        for text in ("ink", "soft"):
            self.assertGreaterEqual(contrast(saw[text], saw["card"]), 4.5, text)
            self.assertGreaterEqual(contrast(saw[text], saw["paper"]), 4.5, text)
        for chart in saw["charts"]:
            with self.subTest(chart=chart["title"]):
                self.check_chart(chart, saw["card"])

    def check_chart(self, chart, card):
        self.assertEqual(chart["name"], chart["title"])
        self.assertGreater(chart["drawn"][1], 150)
        everything = [0, 0, *chart["view"]]
        for what in chart["series"] + chart["texts"]:
            left, top, right, bottom = what["box"]
            self.assertGreaterEqual(min(left - everything[0], top - everything[1]), -1, what)
            self.assertLessEqual(max(right - everything[2], bottom - everything[3]), 1, what)
        for series in chart["series"]:
            left, top, right, bottom = series["box"]
            self.assertGreater(right - left, 20, f"{series} cannot be seen")
            self.assertGreaterEqual(contrast(series["colour"], card), 3, series)
        ticks = [text for text in chart["texts"] if "tick" in text["kind"]]
        self.assertGreater(len(ticks), 4)
        for a, b in itertools.combinations(chart["texts"], 2):
            self.assertFalse(overlap(a["box"], b["box"]), f"{a} lies over {b}")
        self.assertEqual(len(chart["columns"]), 1 + len(chart["series"]))
        self.assertGreater(chart["rows"], 1)
        # Values under the pointer, and under the keys.
        self.assertTrue(chart["pointed"]["shown"])
        self.assertTrue(chart["pointed"]["inside"])
        self.assertGreater(chart["cursor"], 0)
        self.assertFalse(chart["left"], "the values are still shown after the pointer has left")
        for tip in (chart["pointed"], chart["home"], chart["right"]):
            self.assertTrue(tip["head"])
            for line in tip["lines"]:
                self.assertIn(line[0], chart["columns"])
                self.assertRegex(line[1], r"\d")
        self.assertNotEqual(chart["home"]["head"], chart["right"]["head"])
        if len(chart["series"]) > 1:
            self.assertEqual(chart["off"], {"display": "none", "pressed": "false"})
            self.assertEqual(chart["on"], {"display": "inline", "pressed": "true"})

    def test_hitrate(self):
        page = self.make("hitrate", self.trace)
        saw = self.visit(page)
        self.check(saw, ["Hit ratio over capacity", "Gain over LRU", "Bytes", "Requests", "Written to a lower tier"])
        self.assertFalse(saw["dark"])
        hits = saw["charts"][0]
        self.assertIn("opt", hits["columns"])
        self.assertIn("adaptive", hits["columns"])
        self.assertEqual(hits["rows"], 5)
        self.assertEqual(len(hits["pointed"]["lines"]), len(hits["series"]))
        self.assertTrue(any(text["text"].startswith("infinite cache") for text in hits["texts"]))

    def test_replay(self):
        page = self.make("replay", self.trace, "--blocks", "2000", "--workers", "2")
        saw = self.visit(page)
        self.check(saw, REPLAY_CHARTS)
        self.assertIn(EVIL, saw["title"])

    def test_replays_side_by_side_in_the_dark_on_a_narrow_screen(self):
        page = self.make("replay", self.trace, "--compare", "blocks=1200,2000,8000")
        saw = self.visit(page, width=500, dark=True)
        self.check(saw, CAPACITY_CHARTS + REPLAY_CHARTS)
        self.assertTrue(saw["dark"])
        self.assertLess(luminance(saw["paper"]), 0.1)
        self.assertEqual(saw["width"], 500)
        for chart in saw["charts"][:len(CAPACITY_CHARTS)]:
            self.assertEqual(chart["rows"], 3, "a point for each size")
        for chart in saw["charts"][len(CAPACITY_CHARTS):]:
            self.assertEqual(chart["columns"][1:], ["blocks=1200", "blocks=2000", "blocks=8000"])
            self.assertEqual(len({series["colour"] for series in chart["series"]}), 3)

    def test_errors_of_a_page_are_detected(self):
        page = self.make("hitrate", self.trace, "--policy", "lru", "--capacity", "10%,20%")
        visit = Visit(page, self.folder.name,
                      more="<script>missing()</script><img src='https://example.invalid/x.png'>")
        self.assertTrue(any("missing is not defined" in message for message in visit.console), visit.log)
        self.assertTrue(any("Content Security Policy" in message for message in visit.console), visit.log)
        self.assertEqual(visit.saw["markup"], 1)


CAPACITY_CHARTS = [
    "Hit ratio by size of the device memory", "Time to first token by size of the device memory",
    "Cost by size of the device memory"]
REPLAY_CHARTS = [
    "Hit ratio over time", "Time to first token over time", "Times to first token", "Use of the cache",
    "Age of evicted blocks", "Requests waiting over time", "Tokens a second over time"]

if __name__ == "__main__":
    if BROWSER is None:
        print("no browser; install chromium-headless-shell")
        sys.exit(77)
    CAIRN = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
