#!/usr/bin/env python3
"""Fails unless the first C++ block of README.md, and of the pages below, is what its example has between two markers."""

import sys
import textwrap
from pathlib import Path

# Page -> example, and the word of its markers: "// README: begin", "// README: end".
EXAMPLES = {
    "README.md": ("quickstart.cc", "README"),
    "docs/allocator.md": ("allocator.cc", "docs"),
    "docs/events.md": ("events.cc", "docs"),
}


def between(lines, begin, end, name):
    """The lines after the first that is `begin`, up to the next that is `end`."""
    stripped = [line.strip() for line in lines]
    if begin not in stripped:
        sys.exit(f"{name} has no line '{begin}': the example that is shown and compiled starts there")
    start = stripped.index(begin) + 1
    if end not in stripped[start:]:
        sys.exit(f"{name} has no line '{end}' after line {start}")
    return textwrap.dedent("\n".join(lines[start:stripped.index(end, start)])).split("\n")


def check(root, page, example, marker):
    shown = between((root / page).read_text(encoding="utf-8").split("\n"), "```cpp", "```", page)
    source = root / "examples" / example
    compiled = between(source.read_text(encoding="utf-8").split("\n"), f"// {marker}: begin", f"// {marker}: end",
                       f"examples/{example}")
    for number, (left, right) in enumerate(zip(shown + [None], compiled + [None]), 1):
        if left != right:
            sys.exit(f"{page} shows another example than examples/{example}; line {number} of it:\n"
                     f"  {page}: {left}\n  {example}: {right}\n"
                     f"copy the text between the markers into {page}")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    for page, (example, marker) in EXAMPLES.items():
        if page == "README.md" or (root / page).is_file():
            check(root, page, example, marker)


if __name__ == "__main__":
    main()
