#!/usr/bin/env python3
"""Counts the test cases of one run: tally.py JUNIT_XML REPORTS_DIR [SKIPPED_FILE]

Prints "PASSED FAILED SKIPPED". JUNIT_XML is of ctest, or of pytest if REPORTS_DIR is "-". A program that left a googletest
report in REPORTS_DIR counts with its cases, any other with itself; one that failed without a failed case (it crashed, or
ran out of time) counts as one failure more. Names and reasons of skipped cases are appended to SKIPPED_FILE.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count_cases(report, skipped_names):
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.get("status") == "notrun":
            continue
        reason = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.get("result") == "skipped" or reason is not None:
            skipped += 1
            text = reason.get("message", "") if reason is not None else ""
            text = re.sub(r"^\S+:\d+\s+", "", text)  # the place in the source
            skipped_names.append(f"{case.get('classname')}.{case.get('name')}: {' '.join(text.split())}")
        else:
            passed += 1
    return passed, failed, skipped


def tally(junit, reports, skipped_names):
    total = [0, 0, 0]
    for test in ElementTree.parse(junit).iter("testcase"):
        name, status = test.get("name"), test.get("status")
        counts = [0, 0, 0]
        try:
            counts = list(count_cases(reports / f"{name}.xml", skipped_names))
        except (OSError, ElementTree.ParseError):
            pass
        if status == "fail" and counts[1] == 0:
            counts[1] = 1
        elif status == "disabled" or status == "notrun":
            counts = [0, 0, 1]
            skipped_names.append(f"{name}: skipped by ctest")
        elif sum(counts) == 0:
            counts[0] = 1
        total = [a + b for a, b in zip(total, counts)]
    return total


def main(arguments):
    skipped_names = []
    if arguments[2] == "-":
        print(*count_cases(Path(arguments[1]), skipped_names))
    else:
        print(*tally(Path(arguments[1]), Path(arguments[2]), skipped_names))
    if len(arguments) > 3:
        with open(arguments[3], "a", encoding="utf-8") as out:
            out.writelines(f"{name}\n" for name in skipped_names)


if __name__ == "__main__":
    main(sys.argv)
