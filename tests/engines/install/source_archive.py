#!/usr/bin/env python3
"""source_archive.py PROJECT ARCHIVE SHA256 FILE: fetches a source archive from the package index that pip is set up with.

pip itself would build the archive to see what it needs, which takes a compiler and packages that nothing here uses.
"""

import hashlib
import html
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=300) as answer:
        return answer.read()


def index() -> str:
    if given := os.environ.get("PIP_INDEX_URL"):
        return given
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    if asked.returncode == 0:
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI  # pip has no other name for its default

    return PyPI.simple_url


def source_archive(project: str, archive: str, sha256: str) -> bytes:
    """The bytes of the archive. Ends the program with one line if the index has no such archive, or another one."""
    page = f"{index().rstrip('/')}/{project}/"
    links = [html.unescape(link) for link in re.findall(r'href="([^"]+)"', fetch(page).decode())]
    for link in links:
        if urllib.parse.urlsplit(link).path.endswith("/" + archive):
            content = fetch(urllib.parse.urljoin(page, link))
            if hashlib.sha256(content).hexdigest() != sha256:
                raise SystemExit(f"{archive} is not what it was: other bytes")
            return content
    raise SystemExit(f"the package index has no {archive}: {page} lists {len(links)} other files")


if __name__ == "__main__":
    project, archive, sha256, file = sys.argv[1:]
    Path(file).write_bytes(source_archive(project, archive, sha256))
