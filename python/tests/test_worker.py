import types

import numpy as np
import pytest
from fake_torch import FakeTensor
from test_scheduler import BLOCK, BLOCKS, HEADS, LAYERS, SIZE, Engine, config, save

import cairn


def shape(*sizes):
    return np.zeros(sizes, dtype=np.float32)


def test_tensors_of_numpy_torch_and_dlpack():
    array = shape(2, 5, 4, 2, 8)
    group = cairn.KvGroup({"a": array, "b": FakeTensor(array)}, "kv block token head element")
    assert group.facts[0] == group.facts[1]
    pointer, size, memory, _, sizes, strides = group.facts[0]
    assert (pointer, size, memory) == (array.ctypes.data, array.nbytes, "system")
    assert tuple(sizes) == array.shape
    assert tuple(strides) == (5 * 4 * 2 * 8, 4 * 2 * 8, 2 * 8, 8, 1)
    assert (group.page_size, group.element_bits) == (4, 32)

    class Exporter:
        def __dlpack__(self, **keys):
            return array.__dlpack__(**keys)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    assert cairn.KvGroup({"a": Exporter()}, "kv block token head element").facts[0][0] == array.ctypes.data
    cuda = types.SimpleNamespace(
        __cuda_array_interface__={"data": (4096, False), "shape": (3, 4, 8), "typestr": "<f2", "version": 3},
        device=types.SimpleNamespace(id=2),
    )
    assert cairn.KvGroup({"a": cuda}, "block token element").facts[0] == (4096, 192, "device", 2, (3, 4, 8), (32, 8, 1))
    on_gpu = FakeTensor(array, device="cuda", index=1)
    assert cairn.KvGroup({"a": on_gpu}, "kv block token head element").facts[0][2:4] == ("device", 1)


def test_strides_of_a_view_are_followed():
    """HND memory seen as NHD, as vLLM does."""
    array = shape(2, 5, 2, 4, 8).transpose(0, 1, 3, 2, 4)
    group = cairn.KvGroup({"a": array}, "kv block token head element")
    assert tuple(group.facts[0][5]) == (5 * 64, 64, 8, 32, 1)
    assert group.facts[0][1] == array.nbytes


def test_what_no_group_can_be_made_of():
    array = shape(2, 5, 4, 2, 8)
    for wrong in (
        lambda: cairn.KvGroup(array, "kv block token head element"),
        lambda: cairn.KvGroup({"a": array}, "block token"),
        lambda: cairn.KvGroup({"a": array}, "kv block token head element", layers=["a"]),
        lambda: cairn.KvGroup({"a": shape(0, 4)}, "block element", page_size=4),
        lambda: cairn.KvGroup({"a": shape(20, 2, 8)}, "flat_token head element"),
        lambda: cairn.KvGroup({"a": FakeTensor(array, device="xpu")}, "kv block token head element"),
    ):
        with pytest.raises(cairn.InvalidArgumentError):
            wrong()
    array.flags.writeable = False
    with pytest.raises(cairn.InvalidArgumentError, match="read-only"):
        cairn.KvGroup({"a": array}, "kv block token head element")


def test_a_worker_needs_one_scheduler_and_fitting_tensors():
    group = cairn.KvGroup({"a": shape(2, BLOCKS, BLOCK, HEADS, SIZE)}, "kv block token head element")
    with pytest.raises(cairn.InvalidArgumentError, match="either leader"):
        cairn.Worker(group)
    with pytest.raises(cairn.InvalidArgumentError, match="unknown axis 'page'"), cairn.Scheduler(
        config(), device_blocks=BLOCKS
    ) as scheduler:
        cairn.Worker(cairn.KvGroup({"a": shape(2, 4)}, "page token"), scheduler=scheduler)


def test_layers_as_separate_tensors_of_k_and_v():
    with cairn.Scheduler(config(), device_blocks=BLOCKS) as scheduler:
        tensors = {name: (shape(BLOCKS, BLOCK, HEADS, SIZE), shape(BLOCKS, BLOCK, HEADS, SIZE)) for name in ("a", "b")}
        with cairn.Worker(cairn.KvGroup(tensors, "block token head element"), scheduler=scheduler) as worker:
            assert (worker.layer("a"), worker.layer("b"), worker.layer("c")) == (0, 1, None)


def test_in_step_loads_and_saves_by_layer():
    engine = Engine(load_mode="in_step", options={"in_step_save_blocks": 1})
    try:
        tokens = list(range(4 * BLOCK + 1))
        save(engine, "a", tokens, [3, 1, 4, 15, 9])
        engine.kv[:] = 0
        scheduler, worker = engine.scheduler, engine.worker
        request = scheduler.add("b", tokens)
        match = scheduler.match(request)
        assert (match.tokens, match.when) == (16, "now")
        scheduler.allocated(request, [20, 21, 22, 23, 24], loaded_tokens=16)
        engine.number += 1
        worker.bind(scheduler.build(engine.number, [cairn.Scheduled(request, 16, scheduled_tokens=1)]))
        worker.start_load()
        for layer in range(LAYERS):
            worker.wait_for_layer(layer)
            assert (engine.kv[layer, :, 20] == 103).all()
            worker.save_layer(layer)
        outcomes = worker.take_outcomes()
        assert outcomes.failed_blocks == []
        assert outcomes.loaded == [("b", True)]
        scheduler.finish(request, 17)
        engine.until(lambda _: not scheduler.has_work())
    finally:
        engine.close()


def test_events_have_to_be_cuda_events():
    engine = Engine()
    try:
        engine.worker.bind(engine.scheduler.build(1))
        engine.number = 1
        for wrong, match in ((object(), "no CUDA event"), (types.SimpleNamespace(cuda_event=0), "never recorded")):
            with pytest.raises(cairn.InvalidArgumentError, match=match):
                engine.worker.start_load(wrong)
        recorded = types.SimpleNamespace(cuda_event=4096)
        stream = types.SimpleNamespace(record_event=lambda: recorded)
        for event in (recorded, stream, 4096):
            with pytest.raises(cairn.UnavailableError):  # there is no driver here
                engine.worker.start_load(event)
    finally:
        engine.close()


def test_calls_out_of_order(tmp_path):
    engine = Engine()
    try:
        with pytest.raises(cairn.FailedPreconditionError):
            engine.worker.start_load()
        with pytest.raises(cairn.CorruptError):
            engine.worker.bind(b"nonsense")
    finally:
        engine.close()
    with pytest.raises(cairn.FailedPreconditionError, match="closed"):
        engine.worker.bind(b"")
    engine.worker.close()
