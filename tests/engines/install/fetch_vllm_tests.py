#!/usr/bin/env python3
"""fetch_vllm_tests.py FOLDER: vLLM's own tests of KV connectors, from its source archive (44 MB), into FOLDER/tests."""

import io
import sys
import tarfile
from pathlib import Path

from source_archive import source_archive

ARCHIVE = "vllm-0.32.0.tar.gz"
SHA256 = "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad"
UNIT = "tests/v1/kv_connector/unit/"
FILES = (
    *(f"{UNIT}{name}.py" for name in ("__init__", "conftest", "utils")),
    *(f"tests/{name}.py" for name in ("__init__", "v1/__init__", "v1/core/__init__", "v1/core/utils", "v1/kv_connector/__init__")),
)


def main() -> None:
    folder = Path(sys.argv[1])
    content = source_archive("vllm", ARCHIVE, SHA256)
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
