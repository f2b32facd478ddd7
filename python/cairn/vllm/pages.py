"""What the KV cache of an engine's worker looks like to Cairn: pages of opaque bytes, one for each layer and block.

Kernels may pack keys and values of a page as they like, so nothing but whole pages is ever copied, and what a page means is
part of the namespace: blocks are shared only by engines whose pages mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cairn


class Declined(Exception):
    """Cairn cannot hold the KV cache of this engine, and says why. The engine runs without it."""


@dataclass(frozen=True)
class PageFacts:
    """What all ranks of an engine have to agree on. Small and plain: it travels from the workers to the scheduler."""

    layers: int
    blocks: int
    page_bytes: int  # of one layer and block, on one rank
    layout: str  # the order of a page's axes, and the type of its elements


class PageTensor:
    """The pages of a layer: what cairn.KvGroup reads of a torch tensor, in bytes."""

    def __init__(self, tensor: Any, blocks: int, page_bytes: int, page_size: int) -> None:
        size = tensor.element_size()
        if tensor.shape[0] % blocks != 0:
            raise Declined(f"a KV cache of shape {tuple(tensor.shape)} does not have {blocks} blocks")
        parts = tensor.shape[0] // blocks  # the kernel's blocks in a block of the engine
        inner = sorted(zip(tensor.stride()[1:], tensor.shape[1:], strict=True))
        dense = 1
        for stride, length in inner:
            if length > 1 and stride != dense:
                shape = f"shape {tuple(tensor.shape)}, strides {tensor.stride()}"
                raise Declined(f"a block of the KV cache is not in one piece: {shape}")
            dense *= length
        if parts > 1 and tensor.stride()[0] != dense:
            raise Declined(f"the parts of a block of the KV cache are apart: strides {tensor.stride()}")
        if dense * parts * size != page_bytes:
            raise Declined(f"a block of a layer has {dense * parts * size} bytes in memory, but the engine says {page_bytes}")
        self._pointer = tensor.data_ptr()
        self._block_stride = tensor.stride()[0] * parts * size
        self.device = tensor.device
        row = page_bytes // page_size
        self.shape = (blocks, page_size, 1, row)
        self._strides = (self._block_stride, row, row, 1)

    def data_ptr(self) -> int:
        return int(self._pointer)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def element_size(self) -> int:
        return 1


@dataclass
class Pages:
    """The registered KV cache of one rank."""

    facts: PageFacts
    group: cairn.KvGroup
    names: dict[str, str]  # of every layer of the engine: the registered layer whose pages it uses


def describe(tensors: Mapping[str, Any], blocks: int, page_size: int, page_bytes: int) -> Pages:
    """The pages of the tensors by layer name, which have the block as their first axis. Layers that share a tensor are one."""
    if not tensors:
        raise Declined("the engine has no KV cache")
    if page_bytes % page_size != 0:
        raise Declined(f"a page of {page_bytes} bytes cannot be divided among {page_size} tokens")
    by_pointer: dict[int, str] = {}
    names: dict[str, str] = {}
    pages: dict[str, PageTensor] = {}
    layouts: set[str] = set()
    for name, tensor in tensors.items():
        if not hasattr(tensor, "data_ptr"):
            raise Declined(f"the KV cache of layer {name} is not one tensor")
        owner = by_pointer.setdefault(tensor.data_ptr(), name)
        names[name] = owner
        if owner == name:
            pages[name] = PageTensor(tensor, blocks, page_bytes, page_size)
            layouts.add(layout_of(tensor))
    if len(layouts) != 1:
        raise Declined(f"layers have KV caches of different layouts: {', '.join(sorted(layouts))}")
    facts = PageFacts(layers=len(pages), blocks=blocks, page_bytes=page_bytes, layout=layouts.pop())
    return Pages(facts, cairn.KvGroup(pages, "block token head element", page_size=page_size), names)


def layout_of(tensor: Any) -> str:
    """The axes of a page from the outermost in memory to the innermost, by number and length, and the type of an element."""
    axes = sorted(range(1, len(tensor.shape)), key=lambda axis: (-tensor.stride()[axis], axis))
    return "x".join(f"{tensor.shape[axis]}.{axis}" for axis in axes) + f":{str(tensor.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class ModelFacts:
    """What the KV of a token depends on, beside the tokens before it. All of it is in the namespace."""

    name: str
    block_size: int
    tensor_parallel: int
    replicas: int  # ranks with the same pages
    facts: Mapping[str, str]  # revision, types, hash algorithm, platform, version, ...

    def keys(self, pages: PageFacts) -> dict[str, Any]:
        """The keys of Cairn's configuration that describe the model."""
        if self.tensor_parallel % self.replicas != 0:
            raise Declined(f"{self.tensor_parallel} ranks in groups of {self.replicas} replicas")
        facts = dict(self.facts) | {"layout": pages.layout, "page": str(pages.page_bytes), "tp": str(self.tensor_parallel)}
        return {
            "block_size": self.block_size,
            "model.name": ";".join([self.name, *(f"{key}={value}" for key, value in sorted(facts.items()))]),
            "model.scheme": "vllm",
            "model.layers": pages.layers,
            "model.kv": 1,
            "model.heads": self.tensor_parallel // self.replicas,
            "model.head_size": pages.page_bytes // self.block_size,
            "model.element_type": "uint8",
        }
