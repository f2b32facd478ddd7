import gc

import numpy as np
import pytest
from managers import BLOCK, compute, manager, prompt, small

import cairn


def test_layers_and_blocks_are_views_of_the_same_bytes(manager):
    memory = manager.memory("device")
    assert (memory.tier, memory.blocks, memory.layers, memory.element_type) == ("G1", 16, 3, "f16")
    whole = memory.array().numpy()
    assert whole.shape == (16, 3, 2, BLOCK, 2, 8)
    assert whole.dtype == np.float16
    whole[:] = np.arange(whole.size).reshape(whole.shape)
    for layer in range(3):
        assert (memory.layer(layer).numpy() == whole[:, layer]).all()
    assert (memory.block(5).numpy() == whole[5]).all()
    memory.block(5).numpy()[...] = 1
    assert (whole[5] == 1).all() and (whole[4] != 1).any()


def test_the_host_tier_has_the_blocks_that_were_offloaded(manager):
    keys = manager.keys(prompt(3))
    compute(manager, keys, value=7)
    manager.drain()
    host = manager.memory("host").array().numpy()
    with manager.host.match_prefix(keys) as held:
        assert all((host[block_id] == 7).all() for block_id in held.block_ids)


@pytest.mark.parametrize("layout", ["layers-kv-nhd", "layers-kv-hnd", "layers-block-nhd", "contiguous-hnd"])
def test_every_arrangement_has_the_same_axes(layout):
    with cairn.Manager(small(device={"layout": layout})) as manager:
        memory = manager.memory("device")
        array = memory.layer(1).numpy()
        assert array.shape == (16, 2, BLOCK, 2, 8)
        array[3, 1, 2, 1] = np.arange(8)
        keys = manager.keys(prompt(1))
        mutable = manager.device.allocate(1)
        array[mutable.block_ids[0], 1, 2, 1] = 5
        mutable.complete(keys).register().release()
        manager.drain()
        with manager.host.match_prefix(keys) as held:
            host = manager.memory("host").layer(1).numpy()[held.block_ids[0]]
        assert (host[1, 2, 1] == 5).all()
        if layout.startswith("layers"):
            with pytest.raises(cairn.FailedPreconditionError, match="layer"):
                memory.block(0)


def test_arrays_outlive_the_manager():
    manager = cairn.Manager(small())
    array = manager.memory("device").layer(0).numpy()
    array[:] = 3
    manager.close()
    del manager
    gc.collect()
    assert (array == 3).all()
    array[:] = 4
    assert (array == 4).all()


def test_dlpack(manager):
    memory = manager.memory("device").layer(2)
    assert memory.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(memory)
    assert array.shape == memory.shape
    assert array.__array_interface__["data"][0] == memory.pointer
    assert not hasattr(memory, "__cuda_array_interface__")
    memory.numpy()[:] = 9
    assert (array == 9).all()


@pytest.mark.parametrize(
    ("element", "dtype", "last"), [("bf16", np.uint16, 8), ("fp8_e4m3", np.uint8, 8), ("f32", np.float32, 8), ("int4", np.uint8, 4)]
)
def test_types_that_numpy_lacks_are_bits(element, dtype, last):
    config = small()
    config["model"]["element_type"] = element
    with cairn.Manager(config) as manager:
        array = manager.memory().array()
        assert array.element_type == element
        assert array.numpy().dtype == dtype
        assert array.shape[-1] == last
        assert array.numpy().nbytes == 16 * manager.memory().block_bytes


def test_what_has_no_memory_is_an_error(manager, tmp_path):
    with pytest.raises(cairn.NotFoundError):
        manager.memory("disk")
    with pytest.raises(cairn.OutOfRangeError):
        manager.memory("device").layer(3)
    with pytest.raises(IndexError):
        manager.memory("device").block(16)
    with cairn.Manager(small(disk={"blocks": 8, "path": str(tmp_path / "b"), "direct": False})) as other:
        with pytest.raises(cairn.FailedPreconditionError, match="file"):
            other.memory("disk")
