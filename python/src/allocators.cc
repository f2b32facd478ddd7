// The allocators of cairn/allocator/: block numbers with reference counts, and the block tables of sequences.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/allocator/block_manager.h"
#include "cairn/base/str_cat.h"
#include "python/src/binding.h"

namespace cairn::python {
namespace {

using Block = PhysicalTokenBlock;
using Blocks = std::vector<Block>;

// A shared allocator and its tenants have locks, so they stay in the process that made them.
using Shared = OfProcess<std::shared_ptr<SharedBlockAllocator>>;
using Tenant = OfProcess<std::shared_ptr<BlockTenant>>;
using Manager = OfProcess<std::unique_ptr<BlockManager>>;

// cairn.BlockHold: closed when it is released.
class Hold {
 public:
  explicit Hold(BlockHold hold) : hold_(std::move(hold)) {}
  [[nodiscard]] const Block& block() const { return hold_.get().block(); }
  void release() {
    if (hold_.is_of_this_process()) {
      static_cast<void>(hold_.close());
    }
  }

 private:
  OfProcess<BlockHold> hold_;
};

TenantShare share_of(std::string name, std::uint32_t reserved, std::optional<std::uint32_t> limit) {
  return {.name = std::move(name), .reserved = reserved, .limit = limit.value_or(TenantShare::kNoLimit)};
}

// `count` blocks of a BlockAllocator or a BlockTenant.
template <typename Allocator>
Blocks allocate(Allocator& allocator, std::uint32_t count) {
  Blocks blocks;
  check(allocator.allocate(count, blocks));
  return blocks;
}

void bind_block(nb::module_& module) {
  nb::class_<Block>(module, "PhysicalTokenBlock", "One block of a device's KV memory.")
      .def(
          "__init__",
          [](Block* self, std::uint32_t block_number, std::uint32_t block_size, std::uint32_t device_id) {
            new (self) Block{.block_number = block_number, .block_size = block_size, .device_id = device_id};
          },
          nb::arg("block_number"), nb::arg("block_size"), nb::arg("device_id") = 0)
      .def_ro("block_number", &Block::block_number, "0 to total blocks - 1 on its device.")
      .def_ro("block_size", &Block::block_size, "In tokens.")
      .def_ro("device_id", &Block::device_id, "The device.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def(nb::self < nb::self)
      .def("__hash__",
           [](const Block& block) {
             return nb::hash(nb::make_tuple(block.block_number, block.block_size, block.device_id));
           })
      .def("__repr__", [](const Block& block) {
        return str_cat("cairn.PhysicalTokenBlock(", block.block_number, ", block_size=", block.block_size,
                       ", device_id=", block.device_id, ")");
      });
  nb::class_<BlockTable>(module, "BlockTable", R"(The physical blocks of one sequence, in order.

A copy: it shows the moment at which it was made, and holds no reference to the blocks.)")
      .def(nb::init<std::uint32_t>(), nb::arg("block_size"))
      .def(
          "append", [](BlockTable& table, const Block& block) { check(table.append(block)); }, nb::arg("block"),
          "Add a block at the end.")
      .def(
          "replace",
          [](BlockTable& table, std::uint32_t index, const Block& block) { check(table.replace(index, block)); },
          nb::arg("logical_index"), nb::arg("block"), "Put another block in a place.")
      .def_prop_ro(
          "blocks",
          [](const BlockTable& table) {
            return Blocks(table.physical_blocks().begin(), table.physical_blocks().end());
          },
          "The blocks in logical order.")
      .def_prop_ro("block_size", &BlockTable::block_size, "Tokens in a block.")
      .def("__len__", &BlockTable::size)
      .def("__getitem__",
           [](const BlockTable& table, std::int64_t index) {
             const auto size = static_cast<std::int64_t>(table.size());
             if (index < -size || index >= size) {
               throw nb::index_error("block index is out of range");
             }
             return table.physical_blocks()[static_cast<std::size_t>(index < 0 ? index + size : index)];
           })
      .def("__repr__",
           [](const BlockTable& table) { return str_cat("<cairn.BlockTable: ", table.size(), " blocks>"); });
}

void bind_allocator_classes(nb::module_& module) {
  nb::class_<BlockAllocator>(module, "BlockAllocator", R"(The free list and the reference counts of a device's blocks.

`allocate` gives a block one reference, `retain` adds one, `free` drops one; with the last one the block is free again. Use it
in one thread at a time.)")
      .def(
          "__init__",
          [](BlockAllocator* self, std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id) {
            new (self) BlockAllocator(value_or_raise(BlockAllocator::create(total_blocks, block_size, device_id)));
          },
          nb::arg("total_blocks"), nb::arg("block_size"), nb::arg("device_id") = 0)
      .def("allocate", &allocate<BlockAllocator>, nb::arg("count") = 1, "So many blocks, or ExhaustedError.")
      .def(
          "retain", [](BlockAllocator& allocator, const Blocks& blocks) { check(allocator.retain(blocks)); },
          nb::arg("blocks"), "Add a reference to each block.")
      .def(
          "free",
          [](BlockAllocator& allocator, const Blocks& blocks) { return value_or_raise(allocator.free(blocks)); },
          nb::arg("blocks"), "Drop a reference of each block. Returns how many blocks became free.")
      .def(
          "references",
          [](const BlockAllocator& allocator, const Block& block) {
            return value_or_raise(allocator.references(block));
          },
          nb::arg("block"), "How many references the block has.")
      .def_prop_ro("free_blocks", &BlockAllocator::free_blocks, "Blocks that are free.")
      .def_prop_ro("total_blocks", &BlockAllocator::total_blocks, "All blocks.")
      .def_prop_ro("block_size", &BlockAllocator::block_size, "Tokens in a block.")
      .def_prop_ro("device_id", &BlockAllocator::device_id, "The device.")
      .def("__repr__", [](const BlockAllocator& allocator) {
        return str_cat("<cairn.BlockAllocator: ", allocator.free_blocks(), " of ", allocator.total_blocks(),
                       " blocks free>");
      });
  nb::class_<Shared>(module, "SharedBlockAllocator", "A BlockAllocator that several tenants share, from any thread.")
      .def(
          "__init__",
          [](Shared* self, std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id) {
            new (self) Shared(value_or_raise(SharedBlockAllocator::create(total_blocks, block_size, device_id)));
          },
          nb::arg("total_blocks"), nb::arg("block_size"), nb::arg("device_id") = 0)
      .def(
          "join",
          [](const Shared& shared, std::string name, std::uint32_t reserved, std::optional<std::uint32_t> limit) {
            return Tenant(value_or_raise(shared.get()->join(share_of(std::move(name), reserved, limit))));
          },
          nb::arg("name"), nb::arg("reserved") = 0, nb::arg("limit") = nb::none(),
          "Add a tenant. It leaves, and its blocks are freed, when the last object that refers to it goes.")
      .def_prop_ro(
          "free_blocks", [](const Shared& shared) { return shared.get()->free_blocks(); }, "Blocks that are free.")
      .def_prop_ro(
          "total_blocks", [](const Shared& shared) { return shared.get()->total_blocks(); }, "All blocks.")
      .def_prop_ro(
          "block_size", [](const Shared& shared) { return shared.get()->block_size(); }, "Tokens in a block.")
      .def("__repr__", [](const Shared& shared) {
        return str_cat("<cairn.SharedBlockAllocator: ", shared.get()->free_blocks(), " of ",
                       shared.get()->total_blocks(), " blocks free>");
      });
  nb::class_<Tenant>(module, "BlockTenant", "One tenant of a shared allocator.")
      .def(
          "allocate", [](const Tenant& tenant, std::uint32_t count) { return allocate(*tenant.get(), count); },
          nb::arg("count") = 1, "So many blocks, or ExhaustedError.")
      .def(
          "retain", [](const Tenant& tenant, const Blocks& blocks) { check(tenant.get()->retain(blocks)); },
          nb::arg("blocks"), "Add a reference to each block.")
      .def(
          "free", [](const Tenant& tenant, const Blocks& blocks) { return value_or_raise(tenant.get()->free(blocks)); },
          nb::arg("blocks"), "Drop a reference of each block. Returns how many blocks became free.")
      .def(
          "allocate_if_shared",
          [](const Tenant& tenant, const Block& block) {
            return value_or_raise(tenant.get()->allocate_if_shared(block));
          },
          nb::arg("block"), "A new block if this one has more than one reference; None if it has one.")
      .def(
          "can_allocate", [](const Tenant& tenant, std::uint32_t count) { return tenant.get()->can_allocate(count); },
          nb::arg("count"), "Whether so many blocks can be allocated now. A hint: another tenant may come first.")
      .def_prop_ro(
          "used_blocks", [](const Tenant& tenant) { return tenant.get()->used_blocks(); },
          "Blocks that are charged to this tenant.")
      .def_prop_ro(
          "name", [](const Tenant& tenant) { return tenant.get()->share().name; }, "The tenant's name.")
      .def("__repr__", [](const Tenant& tenant) {
        return str_cat("<cairn.BlockTenant ", tenant.get()->share().name, ": ", tenant.get()->used_blocks(),
                       " blocks used>");
      });
}

void bind_block_manager(nb::module_& module) {
  nb::class_<Hold>(module, "BlockHold", R"(A reference to the source block of a copy: it is not reused while this lives.

Release it when the copy is finished, or use it in a `with` statement.)")
      .def_prop_ro("block", &Hold::block, "The block to copy from.")
      .def("release", &Hold::release, "Drop the reference. Has no effect the second time.")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing_extensions.Self"))
      .def(
          "__exit__", [](Hold& hold, const nb::args& /*exception*/) { hold.release(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  nb::class_<Manager>(module, "BlockManager",
                      R"(The block tables of an engine's sequences, for an engine without prefix reuse.

It has an allocator of its own; with `shared` it is a tenant of another. The caller chooses the ids of sequences; a sequence
exists from its first block until it is freed. All calls are safe from any thread. With prefix reuse, see `Manager`.)")
      .def(
          "__init__",
          [](Manager* self, std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id) {
            new (self) Manager(value_or_raise(BlockManager::create(total_blocks, block_size, device_id)));
          },
          nb::arg("total_blocks"), nb::arg("block_size"), nb::arg("device_id") = 0)
      .def_static(
          "shared",
          [](const Shared& allocator, std::string name, std::uint32_t reserved, std::optional<std::uint32_t> limit) {
            return Manager(value_or_raise(
                BlockManager::create_shared(allocator.get(), share_of(std::move(name), reserved, limit))));
          },
          nb::arg("allocator"), nb::arg("name"), nb::arg("reserved") = 0, nb::arg("limit") = nb::none(),
          "A manager that is a tenant of `allocator`.")
      .def(
          "allocate",
          [](const Manager& manager, std::uint64_t sequence_id, std::uint32_t count) {
            return value_or_raise(manager.get()->allocate(sequence_id, count));
          },
          nb::arg("sequence_id"), nb::arg("count") = 1,
          "Append blocks to the sequence; returns the logical index of the first of them.")
      .def(
          "free",
          [](const Manager& manager, std::uint64_t sequence_id) {
            return manager.get()->free_returning_count(sequence_id);
          },
          nb::arg("sequence_id"), "End the sequence, if it exists. Returns how many blocks became free.")
      .def(
          "fork",
          [](const Manager& manager, std::uint64_t parent_id, std::uint64_t child_id) {
            check(manager.get()->fork(parent_id, child_id));
          },
          nb::arg("parent_id"), nb::arg("child_id"), "Make a sequence that shares all blocks of the parent.")
      .def(
          "make_writable",
          [](const Manager& manager, std::uint64_t sequence_id, std::uint32_t logical_index) {
            WritableBlock writable = value_or_raise(manager.get()->make_writable(sequence_id, logical_index));
            return std::pair(writable.block, writable.copy_from
                                                 ? std::optional<Hold>(std::in_place, *std::move(writable.copy_from))
                                                 : std::nullopt);
          },
          nb::arg("sequence_id"), nb::arg("logical_index"),
          R"(The block to write at an index, and the block to copy into it first.

If the block was shared, a new block replaces it, and the second is a `BlockHold`: keep it until the copy is finished. Else it
is None.)")
      .def(
          "get_block_table",
          [](const Manager& manager, std::uint64_t sequence_id) { return manager.get()->get_block_table(sequence_id); },
          nb::arg("sequence_id"), "A copy of the table; None if the sequence does not exist.")
      .def(
          "blocks_for_sequence",
          [](const Manager& manager, std::uint64_t sequence_id) {
            return manager.get()->blocks_for_sequence(sequence_id);
          },
          nb::arg("sequence_id"), "0 if the sequence does not exist.")
      .def(
          "can_allocate",
          [](const Manager& manager, std::uint32_t count) { return manager.get()->can_allocate(count); },
          nb::arg("count"), "Whether so many blocks can be allocated now.")
      .def_prop_ro(
          "used_blocks", [](const Manager& manager) { return manager.get()->used_blocks(); },
          "Blocks in the tables and holds of this manager, each counted once.")
      .def_prop_ro(
          "free_blocks", [](const Manager& manager) { return manager.get()->free_blocks(); },
          "Free blocks of the whole allocator.")
      .def_prop_ro(
          "total_blocks", [](const Manager& manager) { return manager.get()->total_blocks(); },
          "All blocks of the allocator.")
      .def_prop_ro(
          "block_size", [](const Manager& manager) { return manager.get()->block_size(); }, "Tokens in a block.")
      .def("__repr__", [](const Manager& manager) {
        return str_cat("<cairn.BlockManager: ", manager.get()->used_blocks(), " blocks used, ",
                       manager.get()->free_blocks(), " of ", manager.get()->total_blocks(), " free>");
      });
}

}  // namespace

void bind_allocator(nb::module_& module) {
  bind_block(module);
  bind_allocator_classes(module);
  bind_block_manager(module);
}

}  // namespace cairn::python
