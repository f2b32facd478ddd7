import sysconfig
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cairn_command():
    """The `cairn` command that the package installed."""
    return Path(sysconfig.get_path("scripts")) / "cairn"
