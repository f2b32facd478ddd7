#include "cairn/evict/segmented_policy.h"

#include "cairn/evict/lookahead.h"

namespace cairn {

void SegmentedPolicy::insert(std::span<const SlotId> slots) {
  std::size_t next = 0;
  for_each_prefetched(
      slots, [this](SlotId slot) { prefetch(slot); },
      [&](SlotId slot) {
        ++next;
        place(slot);
        queue_.insert(slot, next < slots.size() ? slots[next] : kNoSlot);
      });
}

void SegmentedPolicy::remove(std::span<const SlotId> slots) {
  for_each_prefetched(
      slots, [this](SlotId slot) { queue_.prefetch(slot); }, [this](SlotId slot) { queue_.remove(slot); });
}

void SegmentedPolicy::touch(std::span<const SlotId> slots) {
  for_each_prefetched(slots, [this](SlotId slot) { queue_.prefetch(slot); }, [this](SlotId slot) { place(slot); });
}

void SegmentedPolicy::forget(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    queue_.forget(slot);
  }
}

std::size_t SegmentedPolicy::evict(ClassRange classes, const Veto& veto, std::span<SlotId> out) {
  for (std::size_t evicted = 0; evicted < out.size(); ++evicted) {
    const SlotId victim = choose(classes, veto);
    if (victim == kNoSlot) {
      return evicted;
    }
    queue_.remove(victim);
    gave_up(victim);
    out[evicted] = victim;
  }
  return out.size();
}

SlotId SegmentedPolicy::lower_class(SlotId preferred, SlotId other) const {
  if (preferred == kNoSlot || other == kNoSlot) {
    return preferred == kNoSlot ? other : preferred;
  }
  return queue_.class_of(other) < queue_.class_of(preferred) ? other : preferred;
}

}  // namespace cairn
