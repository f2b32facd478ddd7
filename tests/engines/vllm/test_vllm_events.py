"""vLLM's own classes decode what Cairn publishes, and encode it to the same bytes."""

import msgspec
import numpy as np
import pytest
import zmq
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

import cairn
from cairn.vllm.settings import zmq_library

DECODER = msgspec.msgpack.Decoder(KVEventBatch)
ENCODER = msgspec.msgpack.Encoder()
END = b"\xff" * 8
BLOCK = 4


def decoded(payload):
    batch = DECODER.decode(payload)
    assert ENCODER.encode(batch) == payload
    return batch


@pytest.fixture
def manager():
    config = {
        "block_size": BLOCK,
        "event_token_ids": True,
        "model": {"layers": 1, "heads": 1, "head_size": 8, "element_type": "f16"},
        "device": {"blocks": 8, "memory": "system"},
        "events": {"publish": "tcp://127.0.0.1:*", "replay": "tcp://127.0.0.1:*", "topic": "kv"},
    }
    if (library := zmq_library()) is not None:
        config["events"]["library"] = library
    with cairn.Manager(config) as made:
        yield made


def store(manager, tokens):
    ids = np.array(tokens, dtype=np.uint32)
    keys = manager.keys(ids)
    manager.device.allocate(len(keys)).complete(keys).register(tokens=ids).release()
    return keys


def test_vllm_decodes_the_stream(manager):
    status = manager.status().events
    context = zmq.Context()
    live, replay = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    live.RCVTIMEO = replay.RCVTIMEO = 60_000
    live.connect(status.endpoint)
    live.subscribe("kv")
    replay.connect(status.replay_endpoint)

    first = list(range(2 * BLOCK))
    keys = store(manager, first)
    while manager.status().events.announced_blocks < 2:
        pass
    replay.send_multipart([b"", (0).to_bytes(8, "big")])
    snapshot = []
    while (frames := replay.recv_multipart())[2] != END:
        last = int.from_bytes(frames[2], "big")
        snapshot += decoded(frames[3]).events
    assert isinstance(snapshot[0], AllBlocksCleared)
    assert snapshot[1:] == [
        BlockStored(
            block_hashes=[key.sequence_hash for key in keys],
            parent_block_hash=None,
            token_ids=first,
            block_size=BLOCK,
            lora_id=None,
            medium="GPU",
            lora_name=None,
        )
    ]

    # A subscription takes effect some time after it is made: store until something arrives.
    live.RCVTIMEO = 100
    received = []
    for number in range(1, 600):
        store(manager, [1000 * number + i for i in range(BLOCK)])
        try:
            topic, sequence, payload = live.recv_multipart()
        except zmq.Again:
            continue
        assert topic == b"kv"
        assert int.from_bytes(sequence, "big") > last
        received += decoded(payload).events
        if any(isinstance(event, BlockRemoved) for event in received):
            break
    assert {type(event) for event in received} == {BlockStored, BlockRemoved}
    context.destroy(linger=0)
