#!/usr/bin/env python3
"""Holds the tree to what its documents say: check_layers.py [ROOT]

The tables of docs/architecture.md (folders) and docs/dependencies.md (third-party headers) are the only authority; this
script reads them and knows no folder or library by itself. It prints one line for each violation (where, what is wrong,
what to do) and exits with 1 when there is any.
"""

import fnmatch
import os
import re
import sys
from pathlib import Path

SOURCE_SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc"}
SCRIPT_SUFFIXES = {".py", ".sh", ".cmake"}
# Not a third-party library's: the C library, the kernel, the compiler.
SYSTEM_HEADERS = (
    "sys/* linux/* netinet/* arpa/* net/* asm/* unistd.h fcntl.h pthread.h sched.h errno.h signal.h time.h dlfcn.h "
    "poll.h netdb.h getopt.h dirent.h spawn.h termios.h malloc.h stdint.h stddef.h stdbool.h stdlib.h stdio.h string.h "
    "*intrin.h cpuid.h"
).split()
# Known to users by another path than its own; what is written for them includes it as they do.
INSTALLED_HEADER = ("<", "cairn/cairn_c.h")
ENVIRONMENT_READERS = {"manager", "cli"}
NAMES_OF_PYTHON = {"__init__.py", "conftest.py"}  # a folder of modules, or of tests, has one

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.>])sleep\s*\(")
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
NOT_CODE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<raw>[^()\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""",
    re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*(\S+)")
CODE_SPAN = re.compile(r"`[^`]*`")


def without(text, what):
    """`text` less its comments, or its comments and literals; lines keep their numbers."""
    def blank(match):
        keep = what == "comments" and not match.group("comment")
        return match.group() if keep else "\n" * match.group().count("\n")
    return NOT_CODE.sub(blank, text)


class Checker:
    def __init__(self, root):
        self.root = root
        self.violations = []
        self.layers = {}  # folder -> what it may include: folders, or patterns of paths under cairn/
        self.libraries = []  # (header patterns, folders, library)

    def report(self, path, line, wrong, remedy):
        self.violations.append(f"{path.relative_to(self.root)}:{line}: {wrong}; {remedy}")

    def files(self, suffixes):
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - {"build", ".git", ".cache", "__pycache__"})
            yield from (Path(folder, name) for name in sorted(names) if Path(name).suffix in suffixes)

    # The documents.

    def table_rows(self, document, columns):
        """Yields (line, cells by column name) of the tables in `document` that have all the columns."""
        path = self.root / document
        if not path.is_file():
            self.report(path, 1, "there is no such document", "restore it: this check reads its table")
            return
        header = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.lstrip().startswith("|"):
                header = None
            elif header is None:
                header = cells if all(column in cells for column in columns) else []
            elif header and not set(line) <= set("|-: "):
                yield number, dict(zip(header, cells))

    def read_layers(self):
        document = "docs/architecture.md"
        path = self.root / document
        for number, row in self.table_rows(document, ["folder", "may include"]):
            folders = [name.rstrip("/") for name in re.findall(r"`([^`]+)`", row["folder"])]
            rule = row["may include"].replace("`", "").strip()
            above = set(self.layers)
            if rule == "nothing":
                allowed = set()
            elif rule == "all above":
                allowed = set(above)
            else:
                allowed = {name.strip() for name in rule.split(",")}
            for name in allowed:
                if name.split("/")[0] not in above:
                    self.report(path, number, f"{folders[0]}/ may include {name}, which no row above names",
                                "a folder includes only what stands above it: move the row or drop the name")
            for folder in folders:
                self.layers[folder] = allowed
                if not (self.root / "cairn" / folder).is_dir():
                    self.report(path, number, f"there is no folder cairn/{folder}/",
                                "list what exists: a folder gets its row with its first file")
        if not self.layers and path.is_file():
            self.report(path, 1, "no table with the columns 'folder' and 'may include'", "restore the table of folders")

    def read_libraries(self):
        for _, row in self.table_rows("docs/dependencies.md", ["library", "headers", "folders"]):
            headers = re.findall(r"`([^`]+)`", row["headers"])
            folders = re.findall(r"`([^`]+?)/?`", row["folders"])
            self.libraries.append((headers, folders, row["library"].strip("`")))

    # The sources.

    def check_sources(self):
        by_name = {}
        for path in self.files(SOURCE_SUFFIXES | SCRIPT_SUFFIXES):
            first = by_name.setdefault(path.name, path)
            if first != path and path.name not in NAMES_OF_PYTHON:
                self.report(path, 1, f"{first.relative_to(self.root)} has the same name",
                            "name each file for what only it holds")
            if self.place(path)[0] == "tests" and path.suffix == ".h" and not path.stem.endswith("_testing"):
                self.report(path, 1, "a header of tests that does not end in _testing",
                            f"name it {path.stem}_testing.h")
            if path.suffix in SOURCE_SUFFIXES:
                text = path.read_text(encoding="utf-8", errors="replace")
                self.check_includes(path, text)
                self.check_calls(path, text)

    def place(self, path):
        """(top folder, component): ("cairn", "pool"), ("tests", None)."""
        parts = path.relative_to(self.root).parts
        return parts[0], parts[1] if parts[0] == "cairn" and len(parts) > 2 else None

    def is_test(self, path):
        words = path.stem.split("_")
        return path.relative_to(self.root).parts[0] == "tests" or "test" in words or "testing" in words

    def check_includes(self, path, text):
        top, component = self.place(path)
        for number, line in enumerate(without(text, "comments").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, header = match.groups()
            if (quote, header) == INSTALLED_HEADER:
                continue
            if quote == "<" and not header.startswith("cairn/"):
                self.check_library(path, number, header, component or top)
            elif quote == "<" and top == "cairn":
                self.report(path, number, f"<{header}> is our own header", f'write "{header}"')
            elif not (self.root / header).is_file() or ".." in header.split("/"):
                self.report(path, number, f'"{header}" is no path from the root of the repository',
                            'include our headers by full path, such as "cairn/base/result.h"')
            elif component and not self.may_include(component, header):
                self.report(path, number, f"{component}/ may not include {header}",
                            f"its row in docs/architecture.md allows {self.allowed_words(component)}: "
                            "turn the dependency round, or move the code")

    def may_include(self, component, header):
        parts = header.split("/")
        if parts[0] != "cairn" or len(parts) < 3:
            return False
        if parts[1] == component or component not in self.layers:  # the latter is reported by check_folders
            return True
        inner = "/".join(parts[1:])
        return any(parts[1] == name or fnmatch.fnmatch(inner, name) for name in self.layers[component])

    def allowed_words(self, component):
        return ", ".join(sorted(self.layers[component])) or "nothing"

    def check_library(self, path, number, header, folder):
        if "." not in header and "/" not in header:
            return  # the standard library
        for patterns, folders, library in self.libraries:
            if any(fnmatch.fnmatch(header, pattern) for pattern in patterns):
                if folder in folders or ("tests" in folders and self.is_test(path)):
                    return
                self.report(path, number, f"<{header}> of {library} is included in {folder}/",
                            f"only {', '.join(folders)} may: go through it (docs/dependencies.md)")
                return
        if not any(fnmatch.fnmatch(header, pattern) for pattern in SYSTEM_HEADERS):
            self.report(path, number, f"<{header}> belongs to no library of docs/dependencies.md",
                        "do without it, or add the library there with its reason and its folder")

    def check_calls(self, path, text):
        top, component = self.place(path)
        for number, line in enumerate(without(text, "comments and literals").splitlines(), 1):
            if self.is_test(path) and SLEEP.search(line):
                self.report(path, number, "a test sleeps", "advance a ManualClock, or wait for the event itself")
            if top == "cairn" and component not in ENVIRONMENT_READERS and GETENV.search(line):
                self.report(path, number, "reads the environment",
                            "take it as an option; only " + " and ".join(sorted(ENVIRONMENT_READERS)) + " may read it")

    def check_folders(self):
        for path in sorted((self.root / "cairn").glob("*/")):
            if path.is_dir() and path.name not in self.layers:
                self.report(path, 1, f"cairn/{path.name}/ is no folder of the table in docs/architecture.md",
                            "add a row that says what it holds and may include, or move the files")

    # The public headers.

    def check_public_headers(self):
        """HEADERS of cairn_component() are what the headers right under cairn/ lead to: all of it, and nothing else."""
        public = {}  # path from the root -> the CMakeLists.txt that names it
        for cmake in sorted((self.root / "cairn").glob("*/CMakeLists.txt")):
            for names in re.findall(r"\bHEADERS((?:\s+[\w./]+\.h)+)", cmake.read_text(encoding="utf-8")):
                public.update((f"cairn/{cmake.parent.name}/{name}", cmake) for name in names.split())
        entries = [path.relative_to(self.root).as_posix() for path in sorted((self.root / "cairn").glob("*.h"))]
        reached = set(entries)
        pending = [*entries, *public]
        seen = set()
        while pending:
            header = pending.pop()
            path = self.root / header
            if header in seen or not path.is_file():
                continue
            seen.add(header)
            text = without(path.read_text(encoding="utf-8", errors="replace"), "comments")
            for number, line in enumerate(text.splitlines(), 1):
                match = INCLUDE.match(line)
                if not match or not match.group(2).startswith("cairn/") or match.group(1) == "<":
                    continue
                included = match.group(2)
                reached.add(included)
                if included not in public and included not in entries:
                    self.report(path, number, f"a public header includes {included}, which is not public",
                                "declare what it needs of it, or name it in HEADERS of its cairn_component()")
        for header, cmake in sorted(public.items()):
            if not (self.root / header).is_file():
                self.report(cmake, 1, f"HEADERS names {header}, which does not exist", "name headers that exist")
            elif header not in reached:
                self.report(cmake, 1, f"{header} is public, but no public header includes it",
                            "include it in the header of its component (cairn/core.h and so on), or take it out of HEADERS")

    # The documents' links.

    def check_links(self):
        for path in self.files({".md"}):
            for number, line in self.prose(path):
                for match in LINK.finditer(CODE_SPAN.sub("", line)):
                    target = match.group(1) or match.group(2)
                    if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                        self.check_link(path, number, target)

    def check_link(self, path, number, target):
        file, _, fragment = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if self.root not in (found, *found.parents):
            self.report(path, number, f"the link {target} leads out of the repository",
                        "a clone stands alone: remove it")
        elif not found.exists():
            self.report(path, number, f"the link {target} leads nowhere", "name the file as it is called now")
        elif fragment and found.suffix == ".md" and fragment not in self.anchors(found):
            self.report(path, number, f"{found.name} has no heading for #{fragment}", "name the heading as it is now")

    def prose(self, path):
        fenced = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, line

    def anchors(self, path):
        headings = (line.lstrip("#").strip().lower() for _, line in self.prose(path) if line.startswith("#"))
        return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}

    def run(self):
        self.read_layers()
        self.read_libraries()
        self.check_folders()
        self.check_sources()
        self.check_public_headers()
        self.check_links()
        return self.violations


def main(arguments):
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).parent.parent).resolve()
    violations = Checker(root).run()
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
