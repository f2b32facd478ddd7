#!/usr/bin/env python3
"""Fails unless the C++ block of README.md is what examples/quickstart.cc holds between its two marker comments."""

import sys
import textwrap
from pathlib import Path

BEGIN = "// README: begin"
END = "// README: end"


def between(lines, begin, end, name):
    """The lines after the first that is `begin`, up to the next that is `end`."""
    stripped = [line.strip() for line in lines]
    if begin not in stripped:
        sys.exit(f"{name} has no line '{begin}': the example that is shown and compiled starts there")
    start = stripped.index(begin) + 1
    if end not in stripped[start:]:
        sys.exit(f"{name} has no line '{end}' after line {start}")
    return textwrap.dedent("\n".join(lines[start:stripped.index(end, start)])).split("\n")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    shown = between((root / "README.md").read_text(encoding="utf-8").split("\n"), "```cpp", "```", "README.md")
    source = root / "examples" / "quickstart.cc"
    compiled = between(source.read_text(encoding="utf-8").split("\n"), BEGIN, END, "examples/quickstart.cc")
    for number, (left, right) in enumerate(zip(shown + [None], compiled + [None]), 1):
        if left != right:
            sys.exit(f"README.md shows another example than examples/quickstart.cc; line {number} of it:\n"
                     f"  README.md:     {left}\n  quickstart.cc: {right}\n"
                     "copy the text between the markers into README.md")


if __name__ == "__main__":
    main()
