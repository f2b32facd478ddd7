"""The allocators for engines without prefix reuse."""

import pytest

import cairn


def test_allocator_counts_references():
    allocator = cairn.BlockAllocator(4, 16, device_id=2)
    one, two = allocator.allocate(2)
    assert (one.block_number, two.block_number) == (0, 1) and one.block_size == 16 and one.device_id == 2
    allocator.retain([one])
    assert allocator.references(one) == 2 and allocator.free([one, two]) == 1 and allocator.free_blocks == 3
    with pytest.raises(cairn.FailedPreconditionError):
        allocator.free([two])
    with pytest.raises(cairn.ExhaustedError):
        allocator.allocate(4)
    with pytest.raises(cairn.InvalidArgumentError):
        cairn.BlockAllocator(0, 16)
    assert {one: 1}[cairn.PhysicalTokenBlock(0, 16, 2)] == 1 and "3 of 4" in repr(allocator)


def test_tenants_share():
    allocator = cairn.SharedBlockAllocator(4, 16)
    one, two = allocator.join("one", reserved=2), allocator.join("two", limit=3)
    assert not two.can_allocate(3) and len(two.allocate(2)) == 2
    with pytest.raises(cairn.ExhaustedError):
        two.allocate()
    blocks = one.allocate(2)
    one.retain(blocks[:1])
    assert one.allocate_if_shared(blocks[1]) is None and one.used_blocks == 2
    with pytest.raises(cairn.AlreadyExistsError):
        allocator.join("one")
    del two
    assert allocator.free_blocks == 2


def test_manager_copies_on_write():
    manager = cairn.BlockManager(4, 16)
    assert manager.allocate(1, 2) == 0
    manager.fork(1, 2)
    block, copy_from = manager.make_writable(2, 0)
    assert copy_from is not None and copy_from.block == manager.get_block_table(1)[0] and block != copy_from.block
    with copy_from:
        pass
    with pytest.raises(cairn.FailedPreconditionError, match="closed"):
        copy_from.block
    assert manager.make_writable(2, 0)[1] is None
    assert manager.free(1) == 1 and manager.free(1) == 0 and manager.blocks_for_sequence(2) == 2
    assert manager.get_block_table(1) is None and len(manager.get_block_table(2)) == 2
    with pytest.raises(cairn.NotFoundError):
        manager.fork(1, 3)
    with pytest.raises(cairn.OutOfRangeError):
        manager.make_writable(2, 5)


def test_manager_is_a_tenant_and_a_hold_outlives_it():
    allocator = cairn.SharedBlockAllocator(4, 16)
    manager = cairn.BlockManager.shared(allocator, "engine", limit=3)
    manager.allocate(1)
    manager.fork(1, 2)
    _, hold = manager.make_writable(1, 0)
    manager.free(1)
    manager.free(2)
    del manager
    assert allocator.free_blocks == 3
    hold.release()
    assert allocator.free_blocks == 4


def test_tables_are_values():
    table = cairn.BlockTable(16)
    table.append(cairn.PhysicalTokenBlock(3, 16))
    with pytest.raises(cairn.InvalidArgumentError):
        table.append(cairn.PhysicalTokenBlock(3, 8))
    table.replace(0, cairn.PhysicalTokenBlock(1, 16))
    assert [block.block_number for block in table.blocks] == [1] and table[-1].block_number == 1
    with pytest.raises(IndexError):
        table[1]
