"""Lets SGLang's hierarchical cache run on a machine without a GPU: an SGLang plug-in, loaded in each of its processes.

It replaces what only a GPU has: pinning, events and streams, and the copies of pages between device and host memory. What is
between host memory and the storage, where cairn.sglang is, stays SGLang's own.
"""

import torch


class _Event:
    """An event of work that is done when the call returns."""

    def __init__(self, *given, **named):
        pass

    def record(self, *given):
        pass

    def wait(self, *given):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, other):
        return 0.0


def _host(pool, layer):
    """K and V of one layer in the host pool."""
    buffer = pool.kv_buffer
    if pool.layout == "layer_first":
        return buffer[0, layer], buffer[1, layer]
    if pool.layout == "page_first":
        return buffer[0, :, layer], buffer[1, :, layer]
    if pool.layout == "page_first_direct":
        return buffer[0, :, layer], buffer[1, :, layer]  # [page, token of the page, ...]
    raise NotImplementedError(f"layout {pool.layout} on a CPU")


def _places(pool, indices):
    return (indices // pool.page_size, indices % pool.page_size) if pool.layout == "page_first_direct" else (indices,)


def _to_host(self, device_pool, host_indices, device_indices, io_backend):
    places = _places(self, host_indices)
    for layer in range(self.layer_num):
        keys, values = _host(self, layer)
        keys[places] = device_pool.get_key_buffer(layer)[device_indices]
        values[places] = device_pool.get_value_buffer(layer)[device_indices]


def _to_device(self, device_pool, host_indices, device_indices, layer_id, io_backend, is_draft=False):
    keys, values = _host(self, layer_id)
    places = _places(self, host_indices)
    device_pool.k_buffer[layer_id][device_indices] = keys[places]
    device_pool.v_buffer[layer_id][device_indices] = values[places]


def _latent_host(pool, layer):
    """The latents of one layer in the host pool of a model with MLA."""
    return pool.kv_buffer[layer] if pool.layout == "layer_first" else pool.kv_buffer[:, layer]


def _latents_to_host(self, device_pool, host_indices, device_indices, io_backend):
    for layer in range(self.layer_num):
        _latent_host(self, layer)[_places(self, host_indices)] = device_pool.kv_buffer[layer][device_indices]


def _latents_to_device(self, device_pool, host_indices, device_indices, layer_id, io_backend, is_draft=False):
    device_pool.kv_buffer[layer_id][device_indices] = _latent_host(self, layer_id)[_places(self, host_indices)]


def _unpinned(pool):
    make = pool.__init__

    def make_unpinned(self, *given, **named):
        make(self, *given, **{**named, "pin_memory": False})

    pool.__init__ = make_unpinned


def install():
    if torch.cuda.is_available():
        return
    import sglang.srt.layers.rotary_embedding.base as rotary
    import sglang.srt.mem_cache.pool_host.common as common
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost as HostPool
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost as LatentHostPool
    from sglang.srt.models.deepseek_common import attention_backend_handler as mla

    torch.cpu.Event = _Event
    torch.cpu.Stream.synchronize = lambda self: None
    torch.cpu.Stream.wait_stream = lambda self, stream: None
    rotary._is_cpu = True  # otherwise it wants a CUDA kernel
    common._cuda_host_register = lambda *given, **named: None
    _unpinned(HostPool)
    HostPool.backup_from_device_all_layer_physical = _to_host
    HostPool.load_to_device_per_layer_physical = _to_device
    _unpinned(LatentHostPool)
    LatentHostPool.backup_from_device_all_layer_physical = _latents_to_host
    LatentHostPool.load_to_device_per_layer_physical = _latents_to_device
    # The attention of torch reads latents from the pool in every step, so it must not be given keys and values in some.
    mla.AttentionBackendRegistry.register("torch_native", mla._dispatch_mla_subtype)
