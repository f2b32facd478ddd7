"""Shared by tests of managers: a small model whose device tier is memory of this process."""

import numpy as np
import pytest

import cairn

BLOCK = 4  # tokens


def small(**keys):
    """A configuration: 3 layers, 2 heads of 8 f16 elements; 16 device blocks, 32 host blocks, write-through."""
    config = {
        "block_size": BLOCK,
        "model": {"name": "small", "layers": 3, "heads": 2, "head_size": 8, "element_type": "f16"},
        "device": {"blocks": 16, "memory": "system"},
        "host": {"blocks": 32, "pinning": "off"},
        "offload": {"host": {"mode": "write-through"}},
        "onboard": {"weigh": False},
    }
    for name, value in keys.items():
        section = config.setdefault(name, {})
        if isinstance(value, dict):
            section.update(value)
        else:
            config[name] = value
    return config


@pytest.fixture
def manager():
    with cairn.Manager(small()) as made:
        yield made


def prompt(blocks, seed=0):
    return np.random.default_rng(seed).integers(0, 32_000, blocks * BLOCK, dtype=np.uint32)


def compute(manager, keys, value=None):
    """Allocates device blocks, fills each with a number of its own, registers and releases them."""
    device = manager.memory("device").array().numpy()
    mutable = manager.device.allocate(len(keys))
    for i, block_id in enumerate(mutable.block_ids):
        device[block_id] = i + 1 if value is None else value
    mutable.complete(keys).register().release()
