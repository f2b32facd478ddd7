// RetentionClock: which inactive blocks have something due: the end of their time to live, the end of their priority,
// or a review of their hint.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(log n) for a block that has anything due. 36 bytes a block, allocated at creation.
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

  // How long the block may be inactive until it expires or loses its priority; std::nullopt: forever. Rounded up to
  // milliseconds. Requires: the block is not started.
  void set_time_to_live(BlockId block_id, std::optional<Duration> time_to_live);
  void set_priority_duration(BlockId block_id, std::optional<Duration> duration);
  [[nodiscard]] std::optional<Duration> priority_duration(BlockId block_id) const;
  // The same two as they are kept, in milliseconds; 0: forever.
  [[nodiscard]] std::uint32_t time_to_live_ms(BlockId block_id) const {
    return entries_[index_of(block_id)].time_to_live_ms;
  }
  [[nodiscard]] std::uint32_t priority_ms(BlockId block_id) const { return entries_[index_of(block_id)].priority_ms; }

  // The block is inactive from now on.
  void start(BlockId block_id, TimePoint now);
  // Sets when its hint is reviewed, in place of an earlier call. Requires: started.
  void review_at(BlockId block_id, TimePoint when);
  // The block is in use again, or lost its key.
  void stop(BlockId block_id);

  enum class What : std::uint8_t { kExpired, kPriorityOver, kReview };
  struct Due {
    BlockId block_id;
    What what;
  };
  // The next block with something due, each thing once; std::nullopt if nothing is due. An expired block is stopped.
  [[nodiscard]] std::optional<Due> pop_due(TimePoint now);

  [[nodiscard]] std::size_t bytes() const { return entries_.bytes() + heap_.bytes(); }

 private:
  struct Entry {
    std::int64_t released_ns;
    std::int64_t review_ns;         // 0: none
    std::uint32_t time_to_live_ms;  // 0: forever
    std::uint32_t priority_ms;      // 0: forever
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
