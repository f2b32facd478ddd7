#include "cairn/pool/ready_queue.h"

#include "cairn/base/check.h"

namespace cairn {

Result<ReadyQueue> ReadyQueue::create(std::uint32_t capacity, std::uint32_t tenants) {
  Result<PageArray<Node>> nodes = PageArray<Node>::create(std::size_t{capacity} + tenants);
  if (!nodes) {
    return Unexpected(std::move(nodes).error());
  }
  return ReadyQueue(*std::move(nodes), capacity, tenants);
}

ReadyQueue::ReadyQueue(PageArray<Node> nodes, std::uint32_t capacity, std::uint32_t tenants)
    : nodes_(std::move(nodes)), capacity_(capacity), sizes_(tenants) {
  for (std::uint32_t end = capacity; end < capacity + tenants; ++end) {
    nodes_[end].next = nodes_[end].prev = end + 1;
  }
}

void ReadyQueue::push(SlotId slot, TenantId tenant) {
  CAIRN_DCHECK(!contains(slot), "a slot is ready once");
  unpark(slot);
  const std::uint32_t end = end_of(tenant);
  Node& node = nodes_[index_of(slot)];
  node.next = end + 1;
  node.prev = nodes_[end].prev;
  nodes_[node.prev - 1].next = index_of(slot) + 1;
  nodes_[end].prev = index_of(slot) + 1;
  ++sizes_[index_of(tenant)];
  ++size_;
}

void ReadyQueue::remove(SlotId slot, TenantId tenant) {
  CAIRN_DCHECK(contains(slot), "only a ready slot is removed");
  Node& node = nodes_[index_of(slot)];
  nodes_[node.prev - 1].next = node.next;
  nodes_[node.next - 1].prev = node.prev;
  node.next = kNone;
  --sizes_[index_of(tenant)];
  --size_;
}

void ReadyQueue::park(SlotId slot) {
  nodes_[index_of(slot)].next = kParked;
  ++parked_;
}

void ReadyQueue::unpark(SlotId slot) {
  if (is_parked(slot)) {
    nodes_[index_of(slot)].next = kNone;
    --parked_;
  }
}

}  // namespace cairn
