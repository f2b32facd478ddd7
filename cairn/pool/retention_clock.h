// RetentionClock: which unused blocks have something due: their time to live, the time of their priority, or another look
// at what was hinted of them.
//
// Owner:    the block table, whose lock guards every call.
// Costs:    O(log n) a block that has anything due. 36 bytes a block, taken once, when the pool is created with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"

namespace cairn {

class RetentionClock {
 public:
  static constexpr TimePoint kNever = TimePoint::max();

  [[nodiscard]] static Result<RetentionClock> create(std::uint32_t capacity);

  // How long the block's block may live unused, and keep its priority unused; none: for ever. Both are rounded up to
  // milliseconds. Requires: not started.
  void set_time_to_live(BlockId block_id, std::optional<Duration> time_to_live);
  void set_priority_duration(BlockId block_id, std::optional<Duration> duration);
  [[nodiscard]] std::optional<Duration> priority_duration(BlockId block_id) const;

  // The block is unused from now on.
  void start(BlockId block_id, TimePoint now);
  // Its hint is to be looked at by then, in place of any other time. Requires: started.
  void review_at(BlockId block_id, TimePoint when);
  // It is in use again, or gone.
  void stop(BlockId block_id);

  enum class What : std::uint8_t { kExpired, kPriorityOver, kReview };
  struct Due {
    BlockId block_id;
    What what;
  };
  // One that is due. Each is told once: an expired block is stopped, one whose priority is over has none to lose.
  [[nodiscard]] std::optional<Due> pop_due(TimePoint now);

  [[nodiscard]] std::size_t bytes() const { return entries_.bytes() + heap_.bytes(); }

 private:
  struct Entry {
    std::int64_t released_ns;
    std::int64_t review_ns;         // 0: none
    std::uint32_t time_to_live_ms;  // 0: for ever
    std::uint32_t priority_ms;      // 0: for ever
    std::uint32_t place;            // in the heap, plus one; 0: not queued
    [[nodiscard]] std::int64_t expires_ns() const { return after(time_to_live_ms); }
    [[nodiscard]] std::int64_t priority_over_ns() const { return after(priority_ms); }
    [[nodiscard]] std::int64_t deadline_ns() const;

   private:
    [[nodiscard]] std::int64_t after(std::uint32_t ms) const {
      return ms == 0 ? kNever.count() : released_ns + std::int64_t{ms} * 1'000'000;
    }
  };

  RetentionClock(PageArray<Entry> entries, PageArray<BlockId> heap)
      : entries_(std::move(entries)), heap_(std::move(heap)) {}

  Entry& entry_at(std::uint32_t place) { return entries_[index_of(heap_[place])]; }
  void queue(BlockId block_id);
  void unqueue(BlockId block_id);
  void put(std::uint32_t place, BlockId block_id);
  void sift_up(std::uint32_t place);
  void sift_down(std::uint32_t place);

  PageArray<Entry> entries_;
  PageArray<BlockId> heap_;  // a binary heap, the earliest deadline on top
  std::uint32_t size_ = 0;
};

}  // namespace cairn
