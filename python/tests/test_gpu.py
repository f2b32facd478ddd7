"""Block memory on a GPU is shared with the packages that compute there, without copies. Skipped without a GPU or the package."""

import numpy as np
import pytest
from managers import BLOCK, prompt, small

import cairn
from cairn._cairn import _probe_gpus

pytestmark = pytest.mark.skipif(not _probe_gpus().get("gpus"), reason="there is no GPU")


@pytest.fixture
def manager():
    with cairn.Manager(small(device={"memory": "gpu", "calibration": "off"}, host={"pinning": "required"})) as made:
        yield made


def offloaded(manager, fill):
    """Fills a device block, lets it go to the host tier, and returns what is there."""
    keys = manager.keys(prompt(1))
    mutable = manager.device.allocate(1)
    fill(mutable.block_ids[0])
    mutable.complete(keys).register().release()
    manager.drain()
    with manager.host.match_prefix(keys) as held:
        return manager.memory("host").array().numpy()[held.block_ids[0]].copy()


def test_torch(manager):
    torch = pytest.importorskip("torch")
    memory = manager.memory("device")
    shared = torch.from_dlpack(memory.array())
    assert shared.shape == (16, 3, 2, BLOCK, 2, 8) and shared.dtype == torch.float16 and shared.device.type == "cuda"
    assert shared.data_ptr() == memory.array().pointer == torch.as_tensor(memory.array(), device="cuda").data_ptr()

    def fill(block):
        shared[block] = torch.arange(shared[block].numel(), device="cuda").reshape(shared[block].shape)
        torch.cuda.synchronize()

    copied = offloaded(manager, fill)
    assert (copied == np.arange(copied.size).reshape(copied.shape)).all()


def test_cupy(manager):
    cupy = pytest.importorskip("cupy")
    memory = manager.memory("device")
    shared = cupy.asarray(memory.layer(1))
    assert shared.data.ptr == memory.layer(1).pointer == cupy.from_dlpack(memory.layer(1)).data.ptr

    def fill(block):
        shared[block] = 7
        cupy.cuda.runtime.deviceSynchronize()

    assert (offloaded(manager, fill)[1] == 7).all()


def test_jax(manager):
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    memory = manager.memory("device").block(3)
    torch.from_dlpack(memory)[:] = 5
    torch.cuda.synchronize()
    shared = jax.dlpack.from_dlpack(memory)
    assert shared.unsafe_buffer_pointer() == memory.pointer
    assert shared.shape == memory.shape and (np.asarray(shared) == 5).all()


def test_numpy_does_not_read_a_gpu(manager):
    with pytest.raises(cairn.FailedPreconditionError, match="a GPU's, which numpy cannot read"):
        manager.memory("device").array().numpy()
