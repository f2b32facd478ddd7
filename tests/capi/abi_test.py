"""Checks that the C library exports exactly the functions that its header declares: abi_test.py LIBRARY HEADER

Prints the differences and exits with 1 if there are any. exported_symbols.txt beside this file lists the symbols that
programs may be linked against: symbols may be added, and none may be removed without a new CAIRN_API_VERSION.
"""

import re
import subprocess
import sys
from pathlib import Path


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


def declared(header):
    text = re.sub(r"/\*.*?\*/", " ", Path(header).read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"CAIRN_API\b[^;(]*?\b(cairn_\w+)\s*\(", text))


def main():
    library, header = sys.argv[1:3]
    promised = set((Path(__file__).parent / "exported_symbols.txt").read_text(encoding="utf-8").split())
    shown, named = exported(library), declared(header)
    wrong = [f"{library} exports {name}, not cairn_*" for name in sorted(shown) if not name.startswith("cairn_")]
    wrong += [f"{name} is declared but not exported" for name in sorted(named - shown)]
    wrong += [f"{name} is exported but not declared" for name in sorted(shown - named)]
    wrong += [f"{name} is no longer exported; programs use it" for name in sorted(promised - shown)]
    wrong += [f"{name} is new; add it to exported_symbols.txt" for name in sorted(named - promised)]
    print("\n".join(wrong) if wrong else f"{len(shown)} exported symbols, all declared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
