"""Worker: the worker's side of the connector, over the engine's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._cairn import InvalidArgumentError, Scheduler, WorkerOutcomes, _describe_dlpack, _Worker
from ._record import Record

_TensorFacts = tuple[int, int, str, int, Sequence[int], Sequence[int]]


def _describe(tensor: Any) -> tuple[_TensorFacts, int]:
    """Where a tensor lies (pointer, bytes, memory, device, sizes, strides in elements), and the bits of an element.

    torch is recognised by data_ptr() and not imported; numpy and cupy by their interfaces; others by DLPack.
    """
    device = 0
    memory = "system"
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "element_size"):
        pointer, sizes, strides = tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())
        bits = 8 * tensor.element_size()
        if tensor.device.type == "cuda":
            memory, device = "device", tensor.device.index or 0
        elif tensor.device.type != "cpu":
            raise InvalidArgumentError(f"a tensor on {tensor.device}; expected the CPU or a CUDA device")
    elif hasattr(tensor, "__array_interface__") or hasattr(tensor, "__cuda_array_interface__"):
        if hasattr(tensor, "__array_interface__"):
            interface = tensor.__array_interface__
        else:
            interface = tensor.__cuda_array_interface__
            memory, device = "device", getattr(getattr(tensor, "device", None), "id", 0)
        (pointer, read_only), sizes = interface["data"], tuple(interface["shape"])
        if read_only:
            raise InvalidArgumentError("a tensor is read-only; loads have to write to it")
        bits = 8 * int(interface["typestr"][2:])
        steps = interface.get("strides")
        if steps is None:
            dense = [bits // 8] * len(sizes)
            for i in range(len(sizes) - 1, 0, -1):
                dense[i - 1] = dense[i] * sizes[i]
            steps = tuple(dense)
        if any(8 * step % bits for step in steps):
            raise InvalidArgumentError(f"a tensor has strides {steps}, which are not of whole elements")
        strides = tuple(8 * step // bits for step in steps)
    else:
        pointer, kind, device, shape, element_strides, bits = _describe_dlpack(tensor)
        sizes, strides = tuple(shape), tuple(element_strides)
        memories = {1: "system", 2: "device", 3: "pinned"}
        if kind not in memories:
            raise InvalidArgumentError(f"a tensor on DLPack device type {kind}; expected the CPU or CUDA")
        memory = memories[kind]
    if any(size == 0 for size in sizes):
        raise InvalidArgumentError(f"a tensor of shape {tuple(sizes)} has no elements")
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return (pointer, (last + 1) * bits // 8, memory, device, sizes, strides), bits


def _event(event: Any) -> tuple[int, Any] | None:
    """The handle of a CUDA event. A stream (torch.cuda.Stream) stands for what it has been given so far."""
    if event is None:
        return None
    if isinstance(event, int):
        return event, event
    if not hasattr(event, "cuda_event") and hasattr(event, "record_event"):
        event = event.record_event()
    handle = getattr(event, "cuda_event", None)
    if handle is None:
        raise InvalidArgumentError(
            f"{event!r} is no CUDA event: expected an object with cuda_event (torch.cuda.Event), a stream with "
            "record_event() (torch.cuda.Stream), or the handle as a number"
        )
    if not handle:
        raise InvalidArgumentError(f"{event!r} was never recorded")
    return int(handle), event


class KvGroup:
    """Layers of one shape, with their tensors.

    `tensors`: by layer name, one tensor or (K, V) each; or one tensor of all layers, which has an axis "layer" and comes with
    `layers`, their names. `axes` names the dimensions: block, layer, kv, token, flat_token, head, element. The tensors of
    vLLM, K and V first, are "kv block token head element"; docs/connector.md lists others.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Any,
        axes: str | Sequence[str],
        *,
        layers: Sequence[str] | None = None,
        page_size: int | None = None,
        element_bits: int | None = None,
        name: str = "kv",
    ) -> None:
        self.name = name
        self.axes = axes.split() if isinstance(axes, str) else list(axes)
        if isinstance(tensors, Mapping):
            if layers is not None:
                raise InvalidArgumentError("the keys of `tensors` name the layers; leave `layers` out")
            layers = list(tensors)
            self.tensors = [t for each in tensors.values() for t in (each if isinstance(each, (tuple, list)) else (each,))]
        elif layers is None:
            raise InvalidArgumentError("one tensor for all layers needs `layers`, their names")
        else:
            self.tensors = [tensors]
        self.layers = list(layers)
        described = [_describe(tensor) for tensor in self.tensors]
        for facts, _ in described:
            if len(facts[4]) != len(self.axes):
                raise InvalidArgumentError(f"a tensor of shape {tuple(facts[4])} has other axes than {' '.join(self.axes)}")
        self.facts = [facts for facts, _ in described]
        self.element_bits = element_bits or (described[0][1] if described else 0)
        if page_size is None:
            if "token" not in self.axes:
                raise InvalidArgumentError("tensors without an axis `token` need `page_size`, the tokens of a block")
            page_size = int(self.facts[0][4][self.axes.index("token")]) if self.facts else 0
        self.page_size = page_size

    def __repr__(self) -> str:
        return f"<cairn.KvGroup {self.name}: {len(self.layers)} layers, {' '.join(self.axes)}>"


class Worker:
    """The worker's side of the connector: the KV tensors of one rank, and the loads and saves of each step.

    In each step: bind(), start_load(), wait_for_layer() and save_layer() for each layer if the load mode is in_step,
    save_step(), take_outcomes(). `scheduler` is the Scheduler of this process, or `leader` the address of another one.
    `limits`: fence_limit, layer_limit, answer_limit, first_connection, in seconds. One thread at a time.

    Events are torch.cuda.Event, torch.cuda.Stream (what it was given so far) or a handle; None if the work is done.
    """

    def __init__(
        self,
        groups: KvGroup | Sequence[KvGroup],
        *,
        scheduler: Scheduler | None = None,
        leader: str | None = None,
        rank: int = 0,
        ranks: int = 1,
        pipeline: int = 1,
        first_layer: int | None = None,
        layers: Sequence[str] | None = None,
        secret: str = "",
        limits: Mapping[str, float] | None = None,
    ) -> None:
        groups = [groups] if isinstance(groups, KvGroup) else list(groups)
        if layers is None:
            layers = [layer for group in groups for layer in group.layers]
        self._native = _Worker(
            groups, list(layers), scheduler, leader, rank, ranks, pipeline, first_layer, secret, dict(limits or {})
        )

    def close(self) -> None:
        """Leaves the scheduler. Copies in flight are waited for."""
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._native.closed

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def layer(self, name: str) -> int | None:
        """The number of a layer in calls of this worker."""
        return self._native.layer(name)

    def bind(self, metadata: bytes) -> None:
        """Begins a step. Waits for saves of blocks that the step writes to."""
        self._native.bind(metadata)

    def start_load(self, event: Any = None) -> None:
        """Loads may write to the blocks of this step once `event` has ended."""
        self._native.start_load(_event(event))

    def wait_for_layer(self, layer: int) -> None:
        """Waits until the layer of all loads of this step is there."""
        self._native.wait_for_layer(layer)

    def save_layer(self, layer: int, event: Any = None) -> None:
        """What this step computed of the layer may be read once `event` has ended."""
        self._native.save_layer(layer, _event(event))

    def save_step(self, event: Any = None) -> None:
        """All that this step computed may be read once `event` has ended."""
        self._native.save_step(_event(event))

    def take_outcomes(self) -> WorkerOutcomes:
        """Which loads and saves have ended since the last call, and which blocks failed."""
        return self._native.take_outcomes()

    def state(self) -> Record:
        """Whether the worker is connected, and how much it has copied."""
        return self._native.state()

    def __repr__(self) -> str:
        return "<cairn.Worker closed>" if self.closed else "<cairn.Worker>"
