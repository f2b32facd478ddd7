// ExpiryQueue: which unused blocks have outlived their time to live.
//
// Owner:    the slot table, whose lock guards every call.
// Costs:    O(log n) a slot that has a time to live. 20 bytes a slot, taken once, when the pool is created with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"

namespace cairn {

class ExpiryQueue {
 public:
  [[nodiscard]] static Result<ExpiryQueue> create(std::uint32_t capacity);

  // What the slot's block may live unused; none: for ever. Rounded up to milliseconds. Requires: not queued.
  void set_time_to_live(SlotId slot, std::optional<Duration> time_to_live);

  // The block became unused now: it is queued if it has a time to live.
  void start(SlotId slot, TimePoint now);
  // It is in use again, or gone: no longer queued.
  void stop(SlotId slot);
  // Takes one whose time is over; kNoSlot if there is none.
  [[nodiscard]] SlotId pop_due(TimePoint now);

  [[nodiscard]] std::size_t bytes() const { return entries_.bytes() + heap_.bytes(); }

 private:
  struct Entry {
    std::int64_t deadline_ns;
    std::uint32_t time_to_live_ms;  // 0: for ever
    std::uint32_t place;            // in the heap, plus one; 0: not queued
  };

  ExpiryQueue(PageArray<Entry> entries, PageArray<SlotId> heap)
      : entries_(std::move(entries)), heap_(std::move(heap)) {}

  Entry& entry_at(std::uint32_t place) { return entries_[index_of(heap_[place])]; }
  void put(std::uint32_t place, SlotId slot);
  void sift_up(std::uint32_t place);
  void sift_down(std::uint32_t place);

  PageArray<Entry> entries_;
  PageArray<SlotId> heap_;  // a binary heap, the earliest deadline on top
  std::uint32_t size_ = 0;
};

}  // namespace cairn
