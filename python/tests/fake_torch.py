"""A stand-in for torch, which these tests do not need."""

import types


class FakeTensor:
    """What Cairn reads of a torch tensor, over a numpy array."""

    def __init__(self, array, dtype="torch.bfloat16", device="cpu", index=None):
        self.array, self.shape, self.dtype = array, array.shape, dtype
        self.device = types.SimpleNamespace(type=device, index=index)

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def element_size(self):
        return self.array.itemsize
