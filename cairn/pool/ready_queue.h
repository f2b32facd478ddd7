// ReadyQueue: the inactive blocks that are ready to go, in the order in which they became so, for each tenant.
//
// Does:     remembers blocks; also which of them were taken out to be read and are to come back (parked), and how many of
//           them hang below a block, so that where leaves go first a block waits for those below it.
// Owner:    the block table, whose lock guards every call.
// Costs:    O(1) a call. 12 bytes a block, taken once, when the pool is created with it.
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
    return next != kNone && next != kParked;
  }

  // To the end of its tenant's. Requires: not in it. One that was parked is so no more.
  void push(BlockId block_id, TenantId tenant);
  // Requires: in it, as this tenant's.
  void remove(BlockId block_id, TenantId tenant);
  // The first of a tenant's, and the one after it; kNoBlock where there is none.
  [[nodiscard]] BlockId front(TenantId tenant) const { return block_id_of(nodes_[end_of(tenant)].next); }
  [[nodiscard]] BlockId after(BlockId block_id) const { return block_id_of(nodes_[index_of(block_id)].next); }

  // The block is out of the queue for a while only. Requires: not in it.
  void park(BlockId block_id);
  void unpark(BlockId block_id);
  [[nodiscard]] bool is_parked(BlockId block_id) const { return nodes_[index_of(block_id)].next == kParked; }
  [[nodiscard]] std::uint32_t parked() const { return parked_; }

  // How many ready blocks hang below the block in the block, ready or not.
  [[nodiscard]] std::uint32_t below(BlockId block_id) const { return nodes_[index_of(block_id)].below; }
  void add_below(BlockId block_id) { ++nodes_[index_of(block_id)].below; }
  void remove_below(BlockId block_id) { --nodes_[index_of(block_id)].below; }

  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + sizes_.size() * sizeof(sizes_[0]); }

 private:
  // A node's number plus one: the blocks', then one end for each tenant's ring.
  using Link = std::uint32_t;
  static constexpr Link kNone = 0;
  static constexpr Link kParked = 0xFFFFFFFF;

  struct Node {
    Link next;
    Link prev;
    std::uint32_t below;
  };
  static_assert(sizeof(Node) == 12);

  ReadyQueue(PageArray<Node> nodes, std::uint32_t capacity, std::uint32_t tenants);

  [[nodiscard]] std::uint32_t end_of(TenantId tenant) const { return capacity_ + index_of(tenant); }
  [[nodiscard]] BlockId block_id_of(Link link) const { return link > capacity_ ? kNoBlock : BlockId{link - 1}; }

  PageArray<Node> nodes_;
  std::uint32_t capacity_;
  std::vector<std::uint32_t> sizes_;
  std::uint32_t size_ = 0;
  std::uint32_t parked_ = 0;
};

}  // namespace cairn
