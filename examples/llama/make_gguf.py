"""A random Llama of 0.4 million parameters as a GGUF file, for examples/llama: make_gguf.py FILE

Standard library only. The weights are large enough that greedy tokens vary and depend on the whole prompt.
"""

import random
import struct
import sys

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 512, 128, 2, 4, 2, 256
ALIGNMENT = 32
UINT32, FLOAT32, STRING, F32 = 4, 6, 8, 0  # numbers of types in GGUF and in ggml


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def metadata():
    head = WIDTH // HEADS
    return {
        "general.architecture": "llama",
        "general.alignment": ALIGNMENT,
        "llama.vocab_size": VOCABULARY,
        "llama.context_length": 4096,
        "llama.embedding_length": WIDTH,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": head,
        "tokenizer.ggml.model": "none",
    }


def tensors():
    """Name and shape of each, the fastest dimension first."""
    kv = WIDTH // HEADS * KV_HEADS
    yield "token_embd.weight", (WIDTH, VOCABULARY)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (WIDTH, VOCABULARY)
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH, kv),
            "attn_v": (WIDTH, kv),
            "attn_output": (WIDTH, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (WIDTH, FEED_FORWARD),
            "ffn_up": (WIDTH, FEED_FORWARD),
            "ffn_down": (FEED_FORWARD, WIDTH),
        }.items():
            yield f"blk.{layer}.{name}.weight", shape


def value(entry):
    if isinstance(entry, str):
        return struct.pack("<I", STRING) + text(entry)
    return struct.pack("<If", FLOAT32, entry) if isinstance(entry, float) else struct.pack("<II", UINT32, entry)


def main(path):
    chance = random.Random(0)
    entries, described, data = metadata(), b"", b""
    listed = list(tensors())
    for name, shape in listed:
        described += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, F32, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        numbers = [1.0] * count if len(shape) == 1 else [chance.gauss(0, 0.2) for _ in range(count)]
        data += struct.pack(f"<{count}f", *numbers)
        data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(entries))
    head += b"".join(text(name) + value(entry) for name, entry in entries.items()) + described
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    main(sys.argv[1])
