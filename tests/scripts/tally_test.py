#!/usr/bin/env python3
"""scripts/tally.py counts test cases if a program reports them, and programs otherwise."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import tally  # noqa: E402

REPORT = """<testsuites><testsuite>
<testcase name="A" classname="Pool" status="run" result="completed"/>
<testcase name="B" classname="Pool" status="run" result="skipped"><skipped message="x.cc:1&#x0A;no traces"/></testcase>
<testcase name="C" classname="Pool" status="notrun" result="suppressed"/>
{extra}</testsuite></testsuites>"""
FAILED_CASE = '<testcase name="D" classname="Pool" status="run" result="completed"><failure message="no"/></testcase>'


class Tally(unittest.TestCase):
    def count(self, statuses, reports):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in reports.items():
                Path(folder, f"{name}.xml").write_text(text, encoding="utf-8")
            junit = Path(folder, "ctest.junit")
            cases = "".join(f'<testcase name="{name}" status="{status}"/>' for name, status in statuses.items())
            junit.write_text(f"<testsuite>{cases}</testsuite>", encoding="utf-8")
            self.skipped = []
            return tally.tally(junit, Path(folder), self.skipped)

    def test_counts_cases_of_a_report(self):
        self.assertEqual(self.count({"pool_test": "run"}, {"pool_test": REPORT.format(extra="")}), [1, 0, 1])
        self.assertEqual(self.skipped, ["Pool.B: no traces"])

    def test_failed_case_counts_once(self):
        self.assertEqual(self.count({"pool_test": "fail"}, {"pool_test": REPORT.format(extra=FAILED_CASE)}), [1, 1, 1])

    def test_crash_without_a_report_is_a_failure(self):
        self.assertEqual(self.count({"pool_test": "fail"}, {}), [0, 1, 0])

    def test_crash_with_half_a_report_is_a_failure(self):
        self.assertEqual(self.count({"pool_test": "fail"}, {"pool_test": "<testsuites>"}), [0, 1, 0])

    def test_failure_after_good_cases_is_not_lost(self):
        self.assertEqual(self.count({"pool_test": "fail"}, {"pool_test": REPORT.format(extra="")}), [1, 1, 1])

    def test_program_without_a_report_counts_as_one(self):
        self.assertEqual(self.count({"script": "run", "other": "notrun"}, {}), [1, 0, 1])

    def test_counts_cases_of_pytest(self):
        cases = ('<testcase classname="t" name="a"/><testcase classname="t" name="b"><skipped message="no pandas"/></testcase>'
                 '<testcase classname="t" name="c"><failure/></testcase><testcase classname="t" name="d"><error/></testcase>')
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder, "pytest.junit")
            junit.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
            skipped = []
            self.assertEqual(tally.count_cases(junit, skipped), (1, 2, 1))
            self.assertEqual(skipped, ["t.b: no pandas"])


if __name__ == "__main__":
    unittest.main()
