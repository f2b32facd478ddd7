#!/usr/bin/env python3
"""An engine's scheduler and its one worker, in Python over Cairn's C interface: connector.py LIBRARY

A prompt with an image is computed, saved while it runs, and loaded for the next request that begins with the same tokens and
the same image. Needs nothing but ctypes. The "KV cache" is one array of floats: [layer][K/V][block][token][head][element].
"""

import ctypes as c
import json
import sys

PAGE, DEVICE_BLOCKS, LAYERS, HEADS, SIZE, PROMPT = 4, 32, 2, 2, 8, 18
IMAGE = range(9, 14)  # tokens of the prompt that stand for an image
LATER = 1
AXES = {"block": 0, "layer": 1, "kv": 2, "token": 3, "block_id": 4, "head": 5, "element": 6}
CONFIG = b"""
block_size = 4
[model]
name = "example"
layers = 2
heads = 2
head_size = 8
element_type = "f32"
[host]
blocks = 64
[onboard]
weigh = false  # this engine is so small that it computes faster than anything is loaded
"""


class Sized(c.Structure):
    """A struct that begins with its size, as all of Cairn's do."""

    def __init__(self, **members):
        super().__init__(struct_size=c.sizeof(self), **members)


def struct(name, *members):
    return type(name, (Sized,), {"_fields_": [("struct_size", c.c_size_t), *members]})


U32S, U64S, I64S, TEXTS = (c.POINTER(t) for t in (c.c_uint32, c.c_uint64, c.c_int64, c.c_char_p))
Failure = struct("Failure", ("code", c.c_int32), ("message", c.c_char * 1024))
SchedulerOptions = struct(
    "SchedulerOptions", ("config", c.c_char_p), ("config_file", c.c_char_p), ("use_environment", c.c_uint32),
    ("device_blocks", c.c_uint32), ("ranks", c.c_uint32), ("address", c.c_char_p), ("secret", c.c_char_p),
    ("load_mode", c.c_uint32), ("loading_blocks", c.c_uint32), ("least_blocks", c.c_uint32), ("ask_again", c.c_uint32),
    ("load_deadline_ms", c.c_uint64), ("save_deadline_ms", c.c_uint64))
MmRun = struct("MmRun", ("item_hash", c.c_uint64), ("offset", c.c_uint64), ("length", c.c_uint32),
               ("item_offset", c.c_uint32))
Prompt = struct("Prompt", ("tokens", U32S), ("token_count", c.c_size_t), ("salt", c.c_char_p),
                ("lora_name", c.c_char_p), ("mm_runs", c.POINTER(MmRun)), ("mm_run_count", c.c_size_t))
NewRequest = struct("NewRequest", ("id", c.c_char_p), ("prompt", c.POINTER(Prompt)))
Scheduled = struct(
    "Scheduled", ("request", c.c_uint64), ("computed_tokens", c.c_size_t), ("new_tokens", U32S),
    ("new_token_count", c.c_size_t), ("new_blocks", U32S), ("new_block_count", c.c_size_t), ("draft_tokens", U32S),
    ("draft_token_count", c.c_size_t), ("accepted_draft_tokens", c.c_size_t), ("new_mm_runs", c.POINTER(MmRun)),
    ("new_mm_run_count", c.c_size_t), ("scheduled_tokens", c.c_size_t))
Iteration = struct(
    "Iteration", ("number", c.c_uint64), ("preempted", U64S), ("preempted_count", c.c_size_t),
    ("scheduled", c.POINTER(Scheduled)), ("scheduled_count", c.c_size_t))


class Loaded(c.Structure):
    _fields_ = [("request", c.c_uint64), ("tokens", c.c_size_t), ("missing", c.c_size_t)]


Outcomes = struct("Outcomes", ("loaded", c.c_void_p), ("loaded_count", c.c_size_t), ("released", TEXTS),
                  ("released_count", c.c_size_t), ("loaded_stride", c.c_size_t))
Tensor = struct("Tensor", ("base", c.c_void_p), ("bytes", c.c_uint64), ("memory", c.c_uint32), ("device", c.c_int32),
                ("rank", c.c_uint32), ("axes", U32S), ("sizes", U64S), ("strides", I64S))
Group = struct("Group", ("name", c.c_char_p), ("layers", TEXTS), ("layer_count", c.c_size_t),
               ("tensors", c.POINTER(Tensor)), ("tensor_count", c.c_size_t), ("element_bits", c.c_uint32),
               ("page_size", c.c_uint32))
WorkerOptions = struct(
    "WorkerOptions", ("rank", c.c_uint32), ("ranks", c.c_uint32), ("leader", c.c_char_p), ("scheduler", c.c_void_p),
    ("secret", c.c_char_p), ("fence_limit_ms", c.c_uint64), ("layer_limit_ms", c.c_uint64),
    ("answer_limit_ms", c.c_uint64), ("first_connection_ms", c.c_uint64), ("groups", c.POINTER(Group)),
    ("group_count", c.c_size_t), ("layers", TEXTS), ("layer_count", c.c_size_t))


class WorkerLoaded(c.Structure):
    _fields_ = [("request", c.c_char_p), ("whole", c.c_uint32)]


WorkerOutcomes = struct("WorkerOutcomes", ("loaded", c.c_void_p), ("loaded_count", c.c_size_t), ("saved", TEXTS),
                        ("saved_count", c.c_size_t), ("failed_blocks", U32S), ("failed_block_count", c.c_size_t),
                        ("loaded_stride", c.c_size_t))


def array(kind, values):
    return (kind * len(values))(*values)


def element(kind, first, stride, i):
    """Element i of an array of structs that a later library may have made longer."""
    return kind.from_address(first + i * stride)


class Cairn:
    """The library; a call that fails raises its error message."""

    def __init__(self, path):
        self.library = c.CDLL(path)
        self.library.cairn_version.restype = c.c_char_p
        self.library.cairn_scheduler_manager.restype = c.c_void_p

    def __getattr__(self, name):
        function = getattr(self.library, "cairn_" + name)

        def call(*arguments):
            failure = Failure()
            if function(*arguments, c.byref(failure)) != 0:
                raise RuntimeError(f"{name}: {failure.message.decode()}")

        return call


class Engine:
    """One scheduler, one worker, one KV cache."""

    def __init__(self, cairn):
        self.cairn = cairn
        self.iteration = 0
        self.kv = (c.c_float * (LAYERS * 2 * DEVICE_BLOCKS * PAGE * HEADS * SIZE))()
        self.scheduler = c.c_void_p()
        cairn.scheduler_create(c.byref(SchedulerOptions(config=CONFIG, device_blocks=DEVICE_BLOCKS)),
                               c.byref(self.scheduler))
        names = array(c.c_char_p, [b"layers.%d" % i for i in range(LAYERS)])
        sizes = [LAYERS, 2, DEVICE_BLOCKS, PAGE, HEADS, SIZE]
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
        tensor = Tensor(base=c.addressof(self.kv), bytes=c.sizeof(self.kv), memory=0, rank=len(sizes),
                        axes=array(c.c_uint32, [AXES[a] for a in "layer kv block token head element".split()]),
                        sizes=array(c.c_uint64, sizes), strides=array(c.c_int64, strides))
        group = Group(name=b"attention", layers=names, layer_count=LAYERS, tensors=c.pointer(tensor), tensor_count=1,
                      element_bits=32, page_size=PAGE)
        self.worker = c.c_void_p()
        cairn.worker_create(
            c.byref(WorkerOptions(scheduler=self.scheduler, groups=c.pointer(group), group_count=1, layers=names,
                                  layer_count=LAYERS)), c.byref(self.worker))

    def close(self):
        self.cairn.library.cairn_worker_destroy(self.worker)
        self.cairn.library.cairn_scheduler_destroy(self.scheduler)

    def places(self, blocks, token):
        """The places of a token's KV, with the values that the model computes."""
        row = HEADS * SIZE
        for layer in range(LAYERS):
            for kv in range(2):
                block = (layer * 2 + kv) * DEVICE_BLOCKS + blocks[token // PAGE]
                first = (block * PAGE + token % PAGE) * row
                yield slice(first, first + row), [float(100 * layer + 10 * kv + token + 1)] * row

    def step(self, scheduled, blocks, first, last):
        self.iteration += 1
        iteration = Iteration(number=self.iteration)
        if scheduled:
            iteration.scheduled, iteration.scheduled_count = c.pointer(scheduled), 1
        metadata, size = c.POINTER(c.c_uint8)(), c.c_size_t()
        self.cairn.scheduler_build(self.scheduler, c.byref(iteration), c.byref(metadata), c.byref(size))
        self.cairn.worker_bind(self.worker, metadata, size)
        self.cairn.worker_start_load(self.worker, None)
        for token in range(first, last):
            for place, values in self.places(blocks, token):
                self.kv[place] = values
        self.cairn.worker_save_step(self.worker, None)
        outcomes = WorkerOutcomes()
        self.cairn.worker_take_outcomes(self.worker, c.byref(outcomes))
        assert outcomes.failed_block_count == 0

    def outcomes(self):
        outcomes = Outcomes()
        self.cairn.scheduler_take_outcomes(self.scheduler, c.byref(outcomes))
        return outcomes

    def run(self, name, blocks, image):
        """A request through its prefill; returns how many tokens were loaded instead of computed."""
        tokens = array(c.c_uint32, [99 if i in IMAGE else 7 * i for i in range(PROMPT)])
        run = MmRun(item_hash=image, offset=IMAGE[0], length=len(IMAGE))
        prompt = Prompt(tokens=tokens, token_count=PROMPT, mm_runs=c.pointer(run), mm_run_count=1)
        request, loaded, when = c.c_uint64(), c.c_size_t(), c.c_int32()
        added = NewRequest(id=name, prompt=c.pointer(prompt))
        self.cairn.scheduler_add(self.scheduler, c.byref(added), c.byref(request))
        self.cairn.scheduler_match(self.scheduler, request, c.c_size_t(0), c.byref(loaded), c.byref(when))
        self.cairn.scheduler_allocated(self.scheduler, request, array(c.c_uint32, blocks), c.c_size_t(len(blocks)),
                                       c.c_size_t(0), loaded)
        if when.value == LATER:
            self.step(None, blocks, 0, 0)
            while (outcomes := self.outcomes()).loaded_count == 0:
                pass
            assert element(Loaded, outcomes.loaded, outcomes.loaded_stride, 0).missing == 0
            for token in range(loaded.value):
                for place, values in self.places(blocks, token):
                    assert self.kv[place] == values, "what was loaded is what was computed before"
        self.step(Scheduled(request=request, computed_tokens=loaded.value), blocks, loaded.value, PROMPT)
        held = c.c_uint32()
        self.cairn.scheduler_finish(self.scheduler, request, c.c_size_t(PROMPT), c.byref(held))
        self.step(None, blocks, 0, 0)  # starts the saves
        while held.value and self.outcomes().released_count == 0:
            pass
        return loaded.value

    def status(self):
        manager = c.c_void_p(self.cairn.library.cairn_scheduler_manager(self.scheduler))
        buffer, needed = c.create_string_buffer(1 << 16), c.c_size_t()
        self.cairn.library.cairn_manager_status(manager, buffer, c.c_size_t(len(buffer)), c.byref(needed))
        return json.loads(buffer.value)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cairn = Cairn(sys.argv[1])
    engine = Engine(cairn)
    assert engine.run(b"first", [3, 1, 4, 15, 9], image=0xCA7) == 0
    c.memset(engine.kv, 0, c.sizeof(engine.kv))
    loaded = engine.run(b"second", [2, 6, 5, 30, 0], image=0xCA7)
    assert loaded == 16, loaded
    host = next(tier for tier in engine.status()["tiers"] if tier["level"] == "G2")
    assert host["registered"] == 4, host
    assert engine.run(b"third", [7, 8, 10, 11, 12], image=0xD06) == 8, "another image: only what is before it is the same"
    engine.close()
    print(f"Cairn {cairn.library.cairn_version().decode()}: {loaded} of {PROMPT} tokens loaded instead of computed")


if __name__ == "__main__":
    main()
