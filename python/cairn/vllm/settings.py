"""What an operator sets in `kv_connector_extra_config`, and what Cairn's configuration becomes of it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._settings import flatten

_GIB = 1 << 30
_LARGEST_DEFAULT = 64 * _GIB
_OPTIONS = ("loading_blocks", "least_blocks", "ask_again", "in_step_save_blocks", "load_deadline", "save_deadline")
_OWN = ("load_mode", "config_file", "address", "secret", *_OPTIONS)
_TIER_SIZES = ("host.size", "host.blocks", "disk.size", "disk.blocks")


class SettingsError(ValueError):
    """A mistake in the operator's settings."""


@dataclass
class Settings:
    """The settings of one engine."""

    load_mode: str = "async"
    config_file: Path | None = None
    address: str | None = None  # where ranks find the leader, if not the default
    secret: str = ""  # that leader and ranks prove to each other over TCP
    options: dict[str, float] = field(default_factory=dict)  # of cairn.Scheduler
    keys: dict[str, Any] = field(default_factory=dict)  # of the manager's configuration

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> Settings:
        """Reads `kv_connector_extra_config`: dotted keys or nested."""
        flat = flatten(extra)
        settings = cls(keys={key: value for key, value in flat.items() if key not in _OWN})
        settings.load_mode = flat.get("load_mode", "async")
        if settings.load_mode not in ("async", "in_step"):
            raise SettingsError(f"load_mode is {settings.load_mode!r}; expected async or in_step")
        if "config_file" in flat:
            settings.config_file = Path(flat["config_file"])
            if not settings.config_file.is_file():
                raise SettingsError(f"config_file is {flat['config_file']!r}, and there is no such file")
        settings.address = flat.get("address")
        settings.secret = flat.get("secret", "")
        settings.options = {key: flat[key] for key in _OPTIONS if key in flat}
        if "events.publish" in settings.keys:
            settings.keys.setdefault("event_token_ids", True)  # routers need them
            if (library := zmq_library()) is not None:
                settings.keys.setdefault("events.library", library)
        return settings

    @property
    def in_step(self) -> bool:
        """Whether loads arrive in the step that uses them, layer after layer."""
        return self.load_mode == "in_step"

    def has_tier(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether the operator gave a tier a size, or a file that may do so."""
        if self.config_file is not None or any(key in self.keys for key in _TIER_SIZES):
            return True
        return any("CAIRN_" + key.upper().replace(".", "_") in environment for key in _TIER_SIZES)


def zmq_library() -> str | None:
    """The library of ZeroMQ that vLLM's own publisher uses: the one inside the wheel of pyzmq, if it is a wheel."""
    spec = importlib.util.find_spec("zmq")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parents[1].glob("pyzmq.libs/libzmq*"))
    return str(found[0]) if found else None


def available_memory(root: str = "/") -> int:
    """Bytes that a process can still have: what the machine has available, or less if its control group has less left."""
    available = 0
    for line in Path(root, "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    try:
        group = Path(root, "sys/fs/cgroup", *_own_group(root))
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            available = min(available, int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control group, or another version of them
    return max(available, 0)


def _own_group(root: str) -> list[str]:
    for line in Path(root, "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            parts = [part for part in line[3:].strip().split("/") if part]
            # Inside a container the path may be that of the host, and the container's own group is the root.
            return parts if Path(root, "sys/fs/cgroup", *parts, "memory.max").exists() else []
    return []


def default_host_size(engines: int = 1, root: str = "/") -> int:
    """A quarter of the available memory for all engines of the machine together, and at most 64 GiB for each."""
    return min(available_memory(root) // 4 // max(engines, 1), _LARGEST_DEFAULT)


def default_address(engine_id: str) -> str:
    """A Unix socket in a folder that only this user can write to, the same in all processes of an engine."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"cairn-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SettingsError(f"{folder} is not a folder of this user alone; remove it, or give `address`")
    return f"unix:{folder}/{hashlib.sha256(engine_id.encode()).hexdigest()[:16]}.sock"
