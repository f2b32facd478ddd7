// ReadyQueue: the ready blocks of a pool, for each tenant in the order in which they became ready.
//
// It also remembers which blocks left the queue only to be read and return to it (returning blocks), and how many ready
// children a block has, so that a block can wait for its children if leaves go first.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a call. 12 bytes a block, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"

namespace cairn {

class ReadyQueue {
 public:
  [[nodiscard]] static Result<ReadyQueue> create(std::uint32_t capacity, std::uint32_t tenants);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t size(TenantId tenant) const { return sizes_[index_of(tenant)]; }
  [[nodiscard]] bool contains(BlockId block_id) const {
    const Link next = nodes_[index_of(block_id)].next;
    return next != kNone && next != kReturning;
  }

  // Adds the block at the end of its tenant's queue; it is no longer returning. Requires: not in the queue.
  void push(BlockId block_id, TenantId tenant);
  // Requires: in the queue of this tenant.
  void remove(BlockId block_id, TenantId tenant);
  // The first block of a tenant, and the one after a block; kNoBlock if there is none.
  [[nodiscard]] BlockId front(TenantId tenant) const { return block_of(nodes_[end_of(tenant)].next); }
  [[nodiscard]] BlockId next(BlockId block_id) const { return block_of(nodes_[index_of(block_id)].next); }

  // Requires: not in the queue.
  void mark_returning(BlockId block_id);
  void clear_returning(BlockId block_id);
  [[nodiscard]] bool is_returning(BlockId block_id) const { return nodes_[index_of(block_id)].next == kReturning; }
  [[nodiscard]] std::uint32_t returning_count() const { return returning_; }

  // How many children of the block, which may be ready or not, are ready.
  [[nodiscard]] std::uint32_t ready_children(BlockId block_id) const { return nodes_[index_of(block_id)].children; }
  void add_child(BlockId block_id) { ++nodes_[index_of(block_id)].children; }
  void remove_child(BlockId block_id) { --nodes_[index_of(block_id)].children; }

  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + sizes_.size() * sizeof(sizes_[0]); }

 private:
  // The index of a node plus one. There is a node for each block, then one for each tenant, which closes its ring.
  using Link = std::uint32_t;
  static constexpr Link kNone = 0;
  static constexpr Link kReturning = 0xFFFFFFFF;

  struct Node {
    Link next;
    Link prev;
    std::uint32_t children;
  };
  static_assert(sizeof(Node) == 12);

  ReadyQueue(PageArray<Node> nodes, std::uint32_t capacity, std::uint32_t tenants);

  [[nodiscard]] std::uint32_t end_of(TenantId tenant) const { return capacity_ + index_of(tenant); }
  [[nodiscard]] BlockId block_of(Link link) const { return link > capacity_ ? kNoBlock : BlockId{link - 1}; }

  PageArray<Node> nodes_;
  std::uint32_t capacity_;
  std::vector<std::uint32_t> sizes_;
  std::uint32_t size_ = 0;
  std::uint32_t returning_ = 0;
};

}  // namespace cairn
