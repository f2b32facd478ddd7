#include "cairn/pool/retention_clock.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cairn {

namespace {

// 0 if there is no duration.
std::uint32_t milliseconds_of(std::optional<Duration> duration) {
  if (!duration) {
    return 0;
  }
  constexpr std::int64_t kLongest = std::numeric_limits<std::uint32_t>::max();
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(*duration).count();
  return static_cast<std::uint32_t>(std::min<std::int64_t>(rounded, kLongest));
}

}  // namespace

Result<RetentionClock> RetentionClock::create(std::uint32_t capacity) {
  CAIRN_TRY_ASSIGN(PageArray<Entry> entries, PageArray<Entry>::create(capacity));
  CAIRN_TRY_ASSIGN(PageArray<BlockId> heap, PageArray<BlockId>::create(capacity));
  return RetentionClock(std::move(entries), std::move(heap));
}

std::int64_t RetentionClock::Entry::deadline_ns() const {
  return std::min({expires_ns(), priority_over_ns(), review_ns == 0 ? kNever.count() : review_ns});
}

void RetentionClock::set_time_to_live(BlockId block_id, std::optional<Duration> time_to_live) {
  entries_[index_of(block_id)].time_to_live_ms = milliseconds_of(time_to_live);
}

void RetentionClock::set_priority_duration(BlockId block_id, std::optional<Duration> duration) {
  entries_[index_of(block_id)].priority_ms = milliseconds_of(duration);
}

std::optional<Duration> RetentionClock::priority_duration(BlockId block_id) const {
  const std::uint32_t ms = entries_[index_of(block_id)].priority_ms;
  return ms == 0 ? std::nullopt : std::optional<Duration>(std::chrono::milliseconds(ms));
}

void RetentionClock::start(BlockId block_id, TimePoint now) {
  entries_[index_of(block_id)].released_ns = now.count();
  queue(block_id);
}

void RetentionClock::review_at(BlockId block_id, TimePoint when) {
  unqueue(block_id);
  entries_[index_of(block_id)].review_ns = when == kNever ? 0 : when.count();
  queue(block_id);
}

void RetentionClock::stop(BlockId block_id) {
  unqueue(block_id);
  entries_[index_of(block_id)].review_ns = 0;
}

std::optional<RetentionClock::Due> RetentionClock::pop_due(TimePoint now) {
  if (size_ == 0 || entry_at(0).deadline_ns() > now.count()) {
    return std::nullopt;
  }
  const BlockId block_id = heap_[0];
  Entry& entry = entries_[index_of(block_id)];
  if (entry.expires_ns() <= now.count()) {
    stop(block_id);
    return Due{block_id, What::kExpired};
  }
  unqueue(block_id);
  const bool priority_over = entry.priority_over_ns() <= now.count();
  if (priority_over) {
    entry.priority_ms = 0;
  } else {
    entry.review_ns = 0;
  }
  queue(block_id);
  return Due{block_id, priority_over ? What::kPriorityOver : What::kReview};
}

// Puts the block into the heap if it will have anything due.
void RetentionClock::queue(BlockId block_id) {
  if (entries_[index_of(block_id)].deadline_ns() != kNever.count()) {
    put(size_, block_id);
    sift_up(size_++);
  }
}

void RetentionClock::unqueue(BlockId block_id) {
  Entry& entry = entries_[index_of(block_id)];
  if (entry.place == 0) {
    return;
  }
  const std::uint32_t place = std::exchange(entry.place, 0) - 1;
  const BlockId last = heap_[--size_];
  if (last != block_id) {
    put(place, last);
    sift_up(place);
    sift_down(entries_[index_of(last)].place - 1);
  }
}

void RetentionClock::put(std::uint32_t place, BlockId block_id) {
  heap_[place] = block_id;
  entries_[index_of(block_id)].place = place + 1;
}

void RetentionClock::sift_up(std::uint32_t place) {
  const BlockId block_id = heap_[place];
  const std::int64_t deadline = entries_[index_of(block_id)].deadline_ns();
  while (place > 0 && entry_at((place - 1) / 2).deadline_ns() > deadline) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, block_id);
}

void RetentionClock::sift_down(std::uint32_t place) {
  const BlockId block_id = heap_[place];
  const std::int64_t deadline = entries_[index_of(block_id)].deadline_ns();
  while (2 * place + 1 < size_) {
    std::uint32_t child = 2 * place + 1;
    if (child + 1 < size_ && entry_at(child + 1).deadline_ns() < entry_at(child).deadline_ns()) {
      ++child;
    }
    if (entry_at(child).deadline_ns() >= deadline) {
      break;
    }
    put(place, heap_[child]);
    place = child;
  }
  put(place, block_id);
}

}  // namespace cairn
