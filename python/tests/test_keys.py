"""Keys, hashers, token sequences and the key schemes of engines."""

import array
import hashlib
import pickle

import numpy as np
import pytest

import cairn

SECRET = bytes(range(32))


def hasher(**facts):
    return cairn.KeyHasher("native", SECRET, model="m", block_size=16, **facts)


def test_keys_depend_on_tokens_secret_and_namespace():
    tokens = np.arange(64, dtype=np.uint32)
    keys = cairn.hash_tokens(tokens, 16, hasher())
    assert len(keys) == 4
    assert [key.position for key in keys] == [0, 1, 2, 3]
    assert keys == cairn.hash_tokens(tokens, 16, cairn.KeyHasher(secret=SECRET.hex(), model="m", block_size=16))
    assert keys != cairn.hash_tokens(tokens, 16, cairn.KeyHasher(secret=bytes(32), model="m"))
    assert keys != cairn.hash_tokens(tokens, 16, hasher().with_(salt="user"))
    assert keys == cairn.hash_tokens(tokens, 16, hasher().with_(salt="user").with_())
    assert keys[0].is_parent_of(keys[1]) and not keys[0].is_parent_of(keys[2])
    assert SECRET.hex() not in repr(hasher())


def test_dynamo_keys_are_those_that_routers_compute():
    keys = cairn.hash_tokens([1, 2, 3, 4], 4, cairn.KeyHasher("dynamo"))
    assert keys[0].sequence_hash == cairn.router_hashes([1, 2, 3, 4], 4)[0]
    salted = cairn.hash_tokens([1, 2, 3, 4], 4, cairn.KeyHasher("dynamo", salt="s", lora="a"))
    assert salted[0].sequence_hash == cairn.router_hashes([1, 2, 3, 4], 4, salt="s", lora="a")[0]


@pytest.mark.parametrize(
    "tokens",
    [
        np.arange(40, dtype=np.uint32),
        np.arange(40, dtype=np.int32),
        np.arange(40, dtype=np.int64),
        np.arange(40, dtype=np.uint64),
        np.arange(80, dtype=np.uint32)[::2] // 2,
        np.arange(80, dtype=np.uint32)[::2] >> np.uint32(1),
        list(range(40)),
        tuple(range(40)),
        range(40),
        array.array("I", range(40)),
        memoryview(np.arange(40, dtype=np.uint32)),
        [np.int64(i) for i in range(40)],
    ],
    ids=lambda tokens: f"{type(tokens).__name__}-{getattr(tokens, 'dtype', '')}",
)
def test_any_integers_are_tokens(tokens):
    assert cairn.hash_tokens(tokens, 8, hasher()) == cairn.hash_tokens(list(range(40)), 8, hasher())


def test_strided_tokens_are_read_with_their_strides():
    every_other = np.arange(80, dtype=np.uint32)[::2]
    assert cairn.hash_tokens(every_other, 8, hasher()) == cairn.hash_tokens(every_other.tolist(), 8, hasher())
    reversed_tokens = np.arange(40, dtype=np.uint32)[::-1]
    assert cairn.hash_tokens(reversed_tokens, 8, hasher()) == cairn.hash_tokens(reversed_tokens.tolist(), 8, hasher())


def test_a_read_only_array_is_enough():
    tokens = np.arange(40, dtype=np.uint32)
    tokens.flags.writeable = False
    assert len(cairn.hash_tokens(tokens, 8)) == 5


@pytest.mark.parametrize("tokens", [[-1] * 8, [2**32] * 8, np.full(8, -1), np.full(8, 2**32)])
def test_tokens_out_of_range_are_refused(tokens):
    with pytest.raises(cairn.InvalidArgumentError, match="token 0"):
        cairn.hash_tokens(tokens, 8)


@pytest.mark.parametrize(
    "tokens", [None, "abcdefgh", b"abcdefgh", [1.5] * 8, np.zeros(8), np.zeros((2, 4), np.uint32), 5, {1: 2}]
)
def test_what_is_no_tokens_is_a_type_error(tokens):
    with pytest.raises(TypeError):
        cairn.hash_tokens(tokens, 8)


def test_foreign_byte_order_is_not_misread():
    tokens = np.arange(8, dtype=">u4")
    try:
        keys = cairn.hash_tokens(tokens, 8, hasher())
    except TypeError:
        return
    assert keys == cairn.hash_tokens(range(8), 8, hasher())


def test_a_sequence_that_raises_passes_its_error_on():
    class Broken(list):
        def __getitem__(self, index):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cairn.hash_tokens(Broken([1, 2]), 2)


def test_errors_carry_their_code():
    with pytest.raises(cairn.Error) as caught:
        cairn.hash_tokens([1], 0)
    assert caught.value.code == "invalid_argument"
    assert isinstance(caught.value, ValueError)
    with pytest.raises(cairn.FailedPreconditionError):
        cairn.hash_tokens([1], 1, cairn.KeyHasher("vllm"))
    with pytest.raises(cairn.InvalidArgumentError, match="expected native"):
        cairn.KeyHasher("xxh")
    for secret in (b"short", "zz" * 32):
        with pytest.raises(cairn.InvalidArgumentError) as caught:
            cairn.KeyHasher(secret=secret)
        assert str(secret) not in str(caught.value)


def test_a_key_is_a_value():
    one, two = cairn.hash_tokens(range(8), 4, hasher())
    assert one == cairn.Key.parse(str(one)) == cairn.Key.frombytes(one.tobytes()) == pickle.loads(pickle.dumps(one))
    assert {one: 1}[cairn.Key.parse(str(one))] == 1
    assert one < two and two > one and one <= one and one >= one and one != two
    assert sorted([two, one]) == [one, two]
    assert one != 5 and not one == "x"
    assert int(one) == int.from_bytes(one.tobytes(), "big") == int(one.hex(), 16)
    assert str(one) in repr(one)
    with pytest.raises(cairn.CorruptError):
        cairn.Key.frombytes(b"\xff" * 16)
    with pytest.raises(cairn.Error):
        cairn.Key.parse("no key")


def test_keys_are_a_sequence():
    keys = cairn.hash_tokens(range(400), 4, hasher())
    assert len(keys) == 100 and keys[-1] == keys[99] == list(keys)[99]
    assert keys[10:20] == cairn.Keys(list(keys)[10:20])
    assert keys[::-1][0] == keys[99] and len(keys[5:5]) == 0
    assert keys[:50] + keys[50:] == keys and keys + [keys[0]] != keys
    assert keys[3] in keys and cairn.hash_tokens([9], 1)[0] not in keys
    assert cairn.Keys.frombytes(keys.tobytes()) == keys == pickle.loads(pickle.dumps(keys))
    assert hash(keys) == hash(cairn.Keys(keys)) and keys != [1] and keys != None  # noqa: E711
    assert "100 keys" in repr(keys) and "0 keys" in repr(cairn.Keys([]))
    with pytest.raises(IndexError):
        keys[100]
    with pytest.raises(TypeError):
        cairn.Keys([1])
    with pytest.raises(cairn.CorruptError):
        cairn.Keys.frombytes(b"123")


def test_numpy_sees_keys_without_a_copy():
    keys = cairn.hash_tokens(range(400), 4, hasher())
    words = keys.to_numpy()
    assert words.shape == (100, 2) and words.dtype == np.uint64 and not words.flags.writeable
    assert int(words[7, 0]) << 64 | int(words[7, 1]) == int(keys[7])
    assert keys.to_numpy().ctypes.data == words.ctypes.data
    assert cairn.Keys.from_numpy(words) == keys
    expected = [int(key) for key in keys]
    del keys  # the view keeps the memory
    assert [int(high) << 64 | int(low) for high, low in words] == expected
    with pytest.raises(cairn.CorruptError):
        cairn.Keys.from_numpy(np.full((1, 2), 2**64 - 1, np.uint64))


def test_an_iterator_keeps_its_keys():
    iterator = iter(cairn.hash_tokens(range(16), 4, hasher()))
    expected = cairn.hash_tokens(range(16), 4, hasher())
    assert cairn.Keys(list(iterator)) == expected


def test_a_buffer_cannot_go_away_while_it_is_hashed():
    tokens = array.array("I", range(64))
    keys = cairn.hash_tokens(tokens, 16, hasher())
    tokens.extend([1])  # the call released the buffer
    del tokens
    assert keys == cairn.hash_tokens(range(64), 16, hasher())


def test_a_sequence_grows_and_shrinks():
    sequence = cairn.TokenSequence(range(10), 4, hasher())
    assert len(sequence) == 10 and sequence.block_count == 2 and list(sequence.tail) == [8, 9]
    assert sequence.append(10) is None and sequence.append(11) == 2
    assert sequence.extend(np.arange(12, 21, dtype=np.uint32)) == (3, 5)
    assert sequence.tokens.tolist() == list(range(21))
    assert sequence.keys == cairn.hash_tokens(range(21), 4, hasher())
    assert sequence.block_hashes.dtype == np.uint64 and len(sequence.block_hashes) == 5
    sequence.unwind(1)
    sequence.truncate(9)
    assert sequence.pop() == 8 and len(sequence) == 8
    prefix, rest, runs = sequence.split(3)
    assert len(prefix) == 3 and rest.tolist() == [3, 4, 5, 6, 7] and runs == []
    prefix.extend(rest)
    assert prefix.keys == sequence.keys
    sequence.reset()
    assert len(sequence) == 0 and sequence.pop() is None
    with pytest.raises(cairn.Error):
        sequence.unwind(1)
    assert "0 tokens" in repr(sequence)


def test_tokens_of_a_sequence_are_a_copy():
    sequence = cairn.TokenSequence(range(8), 4)
    before = sequence.tokens
    for token in range(10_000):
        sequence.append(token)
    assert before.tolist() == list(range(8))


def test_multimodal_runs_replace_placeholders():
    run = cairn.MmRun(2, 3, mm_hash=77)
    image = cairn.hash_tokens([1, 2, 9, 9, 9, 3, 4, 5], 4, hasher(), mm_runs=[run])
    assert image == cairn.hash_tokens([1, 2, 0, 0, 0, 3, 4, 5], 4, hasher(), mm_runs=[run])
    assert image != cairn.hash_tokens([1, 2, 9, 9, 9, 3, 4, 5], 4, hasher())
    sequence = cairn.TokenSequence([1, 2, 9, 9, 9, 3, 4, 5], 4, hasher(), mm_runs=[run])
    assert sequence.keys == image and sequence.mm_runs == [run]
    with pytest.raises(cairn.InvalidArgumentError):
        cairn.hash_tokens(range(8), 4, mm_runs=[run, run])


def test_vllm_digests_and_keys():
    digests = cairn.vllm_digests(range(8), 4)
    assert [len(digest) for digest in digests] == [32, 32]
    assert digests == cairn.vllm_digests(range(8), 4)
    assert digests[0] != cairn.vllm_digests(range(8), 4, cache_salt="s")[0]
    assert digests[1:] == cairn.vllm_digests(range(4, 8), 4, parent=digests[0])
    vllm = cairn.KeyHasher("vllm", SECRET)
    keys = cairn.vllm_keys(vllm, digests)
    assert [key.position for key in keys] == [0, 1]
    assert keys[1:] == cairn.vllm_keys(vllm, digests[1:], keys[0])
    assert keys != cairn.vllm_keys(cairn.KeyHasher("vllm"), digests)
    assert cairn.vllm_event_hash(digests[0]) == int.from_bytes(digests[0][-8:], "big")
    sequence = cairn.TokenSequence(range(8), 4, vllm, adopting=True)
    sequence.adopt(keys)
    assert sequence.keys == keys
    with pytest.raises(cairn.Error):
        cairn.vllm_keys(vllm, [b"short"])
    with pytest.raises(cairn.Error):
        cairn.vllm_keys(cairn.KeyHasher("sglang"), digests)


def test_sglang_digests_and_keys():
    first = hashlib.sha256(np.arange(4, dtype="<u4").tobytes()).digest()
    second = hashlib.sha256(first + np.arange(4, 8, dtype="<u4").tobytes()).digest()
    assert cairn.sglang_digests(range(8), 4) == [first, second]
    assert cairn.sglang_event_hash(first) == int.from_bytes(first[:8], "big", signed=True)
    keys = cairn.sglang_keys(cairn.KeyHasher("sglang", SECRET), [first, second])
    assert [key.position for key in keys] == [0, 1]
    assert cairn.sglang_storage_seed() is None and len(cairn.sglang_storage_seed("lora")) == 32


def test_router_keys_are_separated_by_namespace():
    hashes = [1, 2, 3]
    assert cairn.router_keys(hashes, 7) == cairn.router_keys(hashes, 7)
    assert cairn.router_keys(hashes, 7)[0] != cairn.router_keys(hashes, 8)[0]
