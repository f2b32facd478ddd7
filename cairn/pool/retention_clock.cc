#include "cairn/pool/expiry_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace cairn {

Result<ExpiryQueue> ExpiryQueue::create(std::uint32_t capacity) {
  Result<PageArray<Entry>> entries = PageArray<Entry>::create(capacity);
  if (!entries) {
    return Unexpected(std::move(entries).error());
  }
  Result<PageArray<SlotId>> heap = PageArray<SlotId>::create(capacity);
  if (!heap) {
    return Unexpected(std::move(heap).error());
  }
  return ExpiryQueue(*std::move(entries), *std::move(heap));
}

void ExpiryQueue::set_time_to_live(SlotId slot, std::optional<Duration> time_to_live) {
  std::uint32_t milliseconds = 0;
  if (time_to_live) {
    const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(*time_to_live).count();
    constexpr std::int64_t kLongest = std::numeric_limits<std::uint32_t>::max();
    milliseconds = static_cast<std::uint32_t>(std::min<std::int64_t>(rounded, kLongest));
  }
  entries_[index_of(slot)].time_to_live_ms = milliseconds;
}

void ExpiryQueue::start(SlotId slot, TimePoint now) {
  Entry& entry = entries_[index_of(slot)];
  if (entry.time_to_live_ms == 0) {
    return;
  }
  entry.deadline_ns = (now + std::chrono::milliseconds(entry.time_to_live_ms)).count();
  put(size_, slot);
  sift_up(size_++);
}

void ExpiryQueue::stop(SlotId slot) {
  Entry& entry = entries_[index_of(slot)];
  if (entry.place == 0) {
    return;
  }
  const std::uint32_t place = std::exchange(entry.place, 0) - 1;
  const SlotId last = heap_[--size_];
  if (last != slot) {
    put(place, last);
    sift_up(place);
    sift_down(entries_[index_of(last)].place - 1);
  }
}

SlotId ExpiryQueue::pop_due(TimePoint now) {
  if (size_ == 0 || entry_at(0).deadline_ns > now.count()) {
    return kNoSlot;
  }
  const SlotId due = heap_[0];
  stop(due);
  return due;
}

void ExpiryQueue::put(std::uint32_t place, SlotId slot) {
  heap_[place] = slot;
  entries_[index_of(slot)].place = place + 1;
}

void ExpiryQueue::sift_up(std::uint32_t place) {
  const SlotId slot = heap_[place];
  const std::int64_t deadline = entries_[index_of(slot)].deadline_ns;
  while (place > 0 && entry_at((place - 1) / 2).deadline_ns > deadline) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, slot);
}

void ExpiryQueue::sift_down(std::uint32_t place) {
  const SlotId slot = heap_[place];
  const std::int64_t deadline = entries_[index_of(slot)].deadline_ns;
  while (2 * place + 1 < size_) {
    std::uint32_t child = 2 * place + 1;
    if (child + 1 < size_ && entry_at(child + 1).deadline_ns < entry_at(child).deadline_ns) {
      ++child;
    }
    if (entry_at(child).deadline_ns >= deadline) {
      break;
    }
    put(place, heap_[child]);
    place = child;
  }
  put(place, slot);
}

}  // namespace cairn
