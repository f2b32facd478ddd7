"""Block pools and their handles: steps, lifetimes, errors, threads, forks."""

import gc
import multiprocessing
import os
import threading

import numpy as np
import pytest

import cairn


def keys_of(count, salt="", start=0):
    hasher = cairn.KeyHasher("dynamo", salt=salt)
    return cairn.hash_tokens(np.arange(start, start + 4 * count, dtype=np.uint32), 4, hasher)


def filled(pool, keys):
    return pool.allocate(len(keys)).complete(keys).register()


@pytest.fixture
def pool():
    return cairn.BlockPool(16, 4, "lru")


def test_a_block_goes_through_its_states(pool):
    keys = keys_of(3)
    mutable = pool.allocate(3)
    assert len(mutable) == 3 and mutable.block_ids.dtype == np.uint32 and len(set(mutable.block_ids.tolist())) == 3
    assert pool.counts.active == 3 and pool.counts.free == 13
    complete = mutable.complete(keys)
    assert complete.keys == keys and mutable.closed
    immutable = complete.register()
    assert complete.closed and immutable.keys == keys and immutable.tier == "G1" and immutable.is_current
    weak = immutable.downgrade()
    immutable.release()
    assert pool.counts.inactive == 3 and pool.counts.active == 0
    with weak.upgrade() as again:
        assert again.keys == keys and pool.counts.active == 3
    assert again.closed and pool.counts.inactive == 3
    assert all(key in pool for key in keys)
    pool.reset(keys)
    assert weak.upgrade() is None and pool.counts.free == 16


def test_a_pool_is_told_how_a_request_ended(pool):
    keys = keys_of(3)
    held = filled(pool, keys)
    with pytest.raises(cairn.InvalidArgumentError, match="unknown ending 'bored'"):
        held.release("bored")
    assert not held.closed and pool.counts.active == 3
    held.release("tool_call")
    assert held.closed and pool.counts.inactive == 3
    held.release("tool_call")  # has no effect
    assert pool.end_request(keys, "stop") == 3  # an engine's word for the end of a turn
    assert pool.end_request(keys_of(2, salt="other"), "length") == 0


def test_a_used_handle_raises(pool):
    mutable = pool.allocate(1)
    complete = mutable.complete(keys_of(1))
    for use in (
        lambda: len(mutable),
        lambda: mutable.block_ids,
        lambda: mutable.complete(keys_of(1)),
        lambda: mutable.take_front(1),
        lambda: mutable.append(pool.allocate(1)),
    ):
        with pytest.raises(cairn.FailedPreconditionError, match="closed"):
            use()
    assert "closed" in repr(mutable) and "1 block" in repr(complete)
    mutable.release()  # has no effect
    assert pool.counts.active == 1


def test_append_to_a_closed_handle_keeps_the_other(pool):
    closed, other = pool.allocate(1), pool.allocate(2)
    closed.release()
    with pytest.raises(cairn.FailedPreconditionError):
        closed.append(other)
    assert len(other) == 2


def test_a_failed_step_keeps_the_blocks(pool):
    mutable = pool.allocate(2)
    with pytest.raises(cairn.InvalidArgumentError):
        mutable.complete(keys_of(3))
    assert len(mutable) == 2
    complete = mutable.complete([keys_of(1)[0]] * 2)
    with pytest.raises(cairn.Error):
        complete.register()  # a key twice
    assert len(complete) == 2
    with pytest.raises(cairn.Error):
        pool.allocate(2).complete(keys_of(2)).register(tokens=[1])
    assert len(complete.reset()) == 2


def test_a_pool_without_room_raises_exhausted(pool):
    with pool.allocate(16), pytest.raises(cairn.ExhaustedError) as caught:
        pool.allocate(1)
    assert caught.value.code == "exhausted"
    assert pool.stats.allocation_failures == 1


def test_prefixes_are_matched(pool):
    keys = keys_of(4)
    filled(pool, keys[:3]).release()
    with pool.match_prefix(keys) as found:
        assert found.keys == keys[:3]
    assert pool.count_prefix(list(keys)) == 3
    blocks, positions = pool.match_scattered([keys[3], keys[2], keys[0]])
    assert len(blocks) == 2 and positions == [None, 0, 1]
    assert len(pool.scan(keys)) == 3
    peeked = pool.peek(keys)
    assert peeked[3] is None and peeked[1].facts.key == keys[1] and peeked[1].parent == keys[0]
    assert pool.contains_parent_of(keys[3])
    assert [facts.key for _, facts in pool.list_blocks()] == sorted(keys[:3]) or len(pool.list_blocks()) == 3
    assert pool.stats.hits > 0 and "hits=" in repr(pool.stats) and pool.stats.to_dict()["lookups"] > 0


def test_runs_are_split_and_joined(pool):
    blocks = pool.allocate(5)
    ids = blocks.block_ids.tolist()
    front = blocks.take_front(2)
    assert front.block_ids.tolist() == ids[:2] and blocks.block_ids.tolist() == ids[2:]
    front.append(blocks)
    assert front.block_ids.tolist() == ids and blocks.closed
    with pytest.raises(cairn.InvalidArgumentError, match="itself"):
        front.append(front)
    held = front.complete(keys_of(5)).register()
    tail = held.share(2)
    held.release_tail(1)
    assert len(held) == 1 and len(tail) == 2 and pool.counts.active == 2


def test_blocks_of_another_pool_are_refused(pool):
    other = cairn.BlockPool(4, 4)
    blocks = other.allocate(1)
    empty = pool.allocate(0)
    with pytest.raises(cairn.InvalidArgumentError, match="another pool"):
        empty.append(blocks)
    assert len(blocks) == 1


def test_pinned_borrowed_quarantined(pool):
    keys = keys_of(2)
    held = filled(pool, keys)
    pinned = held.pin()
    held.release()
    assert pool.counts.pinned == 2 and pinned.keys == keys and pinned.facts()[0].key == keys[0]
    pinned.release()
    with pool.hold(keys) as again, pool.pin_prefix(keys, counts_as_use=False) as prefix:
        assert len(again) == len(prefix) == 2
    with pool.borrow(keys) as borrowed:
        assert len(borrowed) == 2 and borrowed.is_current and pool.counts.borrowed == 2
    quarantined = pool.allocate(3).quarantine()
    assert pool.counts.quarantined == 3 and len(quarantined) == 3
    quarantined.release_proven_finished()
    assert pool.counts.quarantined == 0 and quarantined.closed


def test_facts_go_from_pool_to_pool(pool):
    keys = keys_of(2)
    sequence = cairn.TokenSequence(range(8), 4, cairn.KeyHasher("dynamo"))
    held = pool.allocate(2).complete_sequence(sequence).register(cairn.Retention(priority=70), tokens=range(8))
    facts = held.facts()
    assert [fact.priority for fact in facts] == [70, 70]
    assert facts[0].tokens_hash == sequence.block_hashes[0] and facts[1].parent == sequence.keys[0].sequence_hash
    below = cairn.BlockPool(4, 4, tier="G2")
    assert below.allocate(2).complete_as(facts).register().keys == sequence.keys == keys
    salted = keys_of(3, "x")
    hashes = sequence.block_hashes
    hashed = pool.allocate(2).complete(salted[1:], tokens_hashes=hashes, parent=salted[0].sequence_hash).register()
    assert hashed.facts()[0].tokens_hash == hashes[0] and hashed.facts()[0].parent == salted[0].sequence_hash


def test_victims_resets_and_fences():
    pool = cairn.BlockPool(8, 4, "lru", low_water=4, seed=1)
    keys = keys_of(6)
    filled(pool, keys).release()
    assert pool.wanted_victims > 0
    pool.claim_victims(2).release_as_victims()
    assert pool.counts.ready == 2
    blocks, evicted = pool.allocate_with_victims(4)
    assert len(evicted) == 2 and len(blocks) == 4
    assert pool.reset([keys[0]]).to_dict() == {"reset": 1, "not_found": 0, "in_use": 0}
    assert pool.discard([keys[1]]) == 1 and keys[1] not in pool
    outcome = pool.fence()
    assert outcome.dropped == 2 and pool.counts.registered == 0 and not blocks.is_current
    assert pool.reset_inactive() == 0
    pool.check_invariants()


def test_options_are_checked():
    for wrong in (
        lambda: cairn.BlockPool(0, 4),
        lambda: cairn.BlockPool(4, 4, "mru"),
        lambda: cairn.BlockPool(4, 4, tier="G9"),
        lambda: cairn.BlockPool(4, 4, duplicates="maybe"),
        lambda: cairn.Retention(time_to_live=-1),
        lambda: cairn.BlockPool(4, 4).hint(keys_of(1), "soon"),
        lambda: cairn.BlockPool(4, 4).restore([0], []),
    ):
        with pytest.raises(cairn.InvalidArgumentError):
            wrong()
    with pytest.raises(TypeError):
        cairn.BlockPool(-1, 4)


def test_tenants_hints_and_restore():
    pool = cairn.BlockPool(
        8, 4, hints=True, tenants=[cairn.TenantQuota("a", reserved=4), cairn.TenantQuota("b", limit=2)]
    )
    with pool.allocate(2, tenant=1), pytest.raises(cairn.ExhaustedError):
        assert pool.usage(1).used == 2
        pool.allocate(1, tenant=1)
    with pytest.raises(cairn.Error):
        pool.usage(9)
    keys = keys_of(2)
    fresh = cairn.BlockPool(8, 4)
    fresh.restore([5, 3], keys)
    assert fresh.match_prefix(keys).block_ids.tolist() == [5, 3]
    filled(pool, keys).release()
    assert pool.hint(keys, "returns", after=5.0) == 2
    assert "TenantQuota('a'" in repr(cairn.TenantQuota("a"))


def test_handles_keep_their_pool_alive():
    pool = cairn.BlockPool(8, 4)
    held = filled(pool, keys_of(3))
    weak = held.downgrade()
    del pool
    gc.collect()
    assert len(held) == 3
    held.release()
    again = weak.upgrade()
    del weak, held
    assert len(again) == 3


def test_dropping_a_handle_releases(pool):
    blocks = pool.allocate(3)
    del blocks
    assert pool.counts.free == 16
    held = filled(pool, keys_of(2))
    held.reset_on_release()
    held.set_retention(cairn.Retention(10))
    del held
    assert pool.counts.free == 16


def test_a_handle_may_be_dropped_on_any_thread(pool):
    box = [pool.allocate(4)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool.counts.free == 16


def test_several_threads_use_one_pool():
    pool = cairn.BlockPool(4096, 4, "lru")
    failures = []

    def work(number):
        try:
            for round_ in range(60):
                keys = keys_of(200, salt=str((number + round_) % 5))
                with pool.match_prefix(keys) as found:
                    missing = keys[len(found) :]
                    if len(missing):
                        filled(pool, missing).release()
                    assert found.keys == keys[: len(found)]
        except cairn.ExhaustedError:
            pass
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pool.counts.active == 0
    pool.check_invariants()


def test_one_handle_used_by_many_threads_is_consumed_once():
    for _ in range(20):
        pool = cairn.BlockPool(512, 4)
        blocks = pool.allocate(400)
        keys = keys_of(400)
        done, refused, barrier = [], [], threading.Barrier(4)

        def step():
            barrier.wait()
            try:
                done.append(blocks.complete(keys))
            except cairn.FailedPreconditionError as error:
                refused.append(error)

        threads = [threading.Thread(target=step) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 1 and len(refused) == 3
        done.clear()
        assert pool.counts.free == 512


def in_child(check):
    """Runs check() in a forked child; returns its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def raises_after_fork(call):
    try:
        call()
    except cairn.FailedPreconditionError as error:
        assert "fork" in str(error)
    else:
        raise AssertionError("it worked")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_must_not_use_the_parents_objects(pool):
    blocks = pool.allocate(2)
    allocator = cairn.SharedBlockAllocator(4, 4)

    def child():
        raises_after_fork(lambda: pool.allocate(1))
        raises_after_fork(lambda: pool.counts)
        raises_after_fork(lambda: len(blocks))
        raises_after_fork(lambda: blocks.complete(keys_of(2)))
        raises_after_fork(lambda: allocator.free_blocks)
        blocks.release()  # has no effect: the blocks are the parent's
        own = cairn.BlockPool(4, 4)
        assert len(own.allocate(4)) == 4
        assert len(cairn.hash_tokens(range(8), 4)) == 2

    assert in_child(child) == 0
    assert len(blocks) == 2 and pool.counts.active == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_may_drop_the_parents_objects():
    pool = cairn.BlockPool(4, 4)
    box = [pool.allocate(2), pool]
    del pool

    def child():
        box.clear()
        gc.collect()

    assert in_child(child) == 0
    assert len(box[0]) == 2


def square_of_pool(capacity):
    return cairn.BlockPool(capacity, 4).counts.total ** 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_works():
    cairn.BlockPool(4, 4)
    with multiprocessing.get_context("fork").Pool(2) as processes:
        assert processes.map(square_of_pool, [1, 2, 3]) == [1, 4, 9]
