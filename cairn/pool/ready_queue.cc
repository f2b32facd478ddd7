#include "cairn/pool/ready_queue.h"

#include "cairn/base/check.h"

namespace cairn {

Result<ReadyQueue> ReadyQueue::create(std::uint32_t capacity, std::uint32_t tenants) {
  CAIRN_TRY_ASSIGN(PageArray<Node> nodes, PageArray<Node>::create(std::size_t{capacity} + tenants));
  return ReadyQueue(std::move(nodes), capacity, tenants);
}

ReadyQueue::ReadyQueue(PageArray<Node> nodes, std::uint32_t capacity, std::uint32_t tenants)
    : nodes_(std::move(nodes)), capacity_(capacity), sizes_(tenants) {
  for (std::uint32_t end = capacity; end < capacity + tenants; ++end) {
    nodes_[end].next = nodes_[end].prev = end + 1;
  }
}

void ReadyQueue::push(BlockId block_id, TenantId tenant) {
  CAIRN_DCHECK(!contains(block_id), "a block is ready once");
  clear_returning(block_id);
  const std::uint32_t end = end_of(tenant);
  Node& node = nodes_[index_of(block_id)];
  node.next = end + 1;
  node.prev = nodes_[end].prev;
  nodes_[node.prev - 1].next = index_of(block_id) + 1;
  nodes_[end].prev = index_of(block_id) + 1;
  ++sizes_[index_of(tenant)];
  ++size_;
}

void ReadyQueue::remove(BlockId block_id, TenantId tenant) {
  CAIRN_DCHECK(contains(block_id), "only a ready block is removed");
  Node& node = nodes_[index_of(block_id)];
  nodes_[node.prev - 1].next = node.next;
  nodes_[node.next - 1].prev = node.prev;
  node.next = kNone;
  --sizes_[index_of(tenant)];
  --size_;
}

void ReadyQueue::mark_returning(BlockId block_id) {
  nodes_[index_of(block_id)].next = kReturning;
  ++returning_;
}

void ReadyQueue::clear_returning(BlockId block_id) {
  if (is_returning(block_id)) {
    nodes_[index_of(block_id)].next = kNone;
    --returning_;
  }
}

}  // namespace cairn
