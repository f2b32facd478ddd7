"""`python -m cairn doctor` says what the machine offers; `python -m cairn COMMAND ...` runs the `cairn` command."""

from __future__ import annotations

import os
import sys
import sysconfig


def command_path() -> str:
    """The `cairn` command that this package installed."""
    for scheme in (None, "posix_user"):
        folder = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        path = os.path.join(folder, "cairn")
        if os.access(path, os.X_OK):
            return path
    raise SystemExit("cairn: the package has no `cairn` command beside it; reinstall it with pip")


def main() -> None:
    """Run the doctor, or the command."""
    words = sys.argv[1:]
    if words[:1] == ["doctor"]:
        from . import doctor

        raise SystemExit(doctor.main(words[1:]))
    if words in ([], ["--help"], ["-h"]):
        print("python -m cairn doctor [--json] [PATH]   what this machine offers, and how to fix what is missing\n")
    sys.stdout.flush()
    path = command_path()
    os.execv(path, [path, *words])


if __name__ == "__main__":
    main()
