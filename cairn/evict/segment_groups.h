// SegmentGroups: a set of segments, grouped by eviction class, of which any can be picked at random.
//
// The groups lie one after the other in one array. A segment that is added or removed moves one segment of each group
// behind its own.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(groups that are not empty) to add or remove; O(1) to pick. 4 bytes for each segment that fits, and 8 a class.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"

namespace cairn {

class SegmentGroups {
 public:
  using SegmentId = std::uint32_t;

  [[nodiscard]] static Result<SegmentGroups> create(std::uint32_t segments, std::uint32_t class_count) {
    CAIRN_TRY_ASSIGN(PageArray<SegmentId> members, PageArray<SegmentId>::create(segments));
    return SegmentGroups(std::move(members), class_count);
  }

  [[nodiscard]] std::span<const SegmentId> of_class(std::uint32_t eviction_class) const {
    const Group& group = groups_[eviction_class];
    return {&members_[group.begin], group.count};
  }
  // The first class from `first` on that has segments, below `last`; `last` if there is none.
  [[nodiscard]] std::uint32_t next_class(std::uint32_t first, std::uint32_t last) const {
    const auto end = static_cast<std::uint32_t>(groups_.size());
    const std::uint32_t limit = last < end ? last : end;
    for (std::uint32_t word = first / 64; word * 64 < limit; ++word) {
      std::uint64_t bits = occupied_[word];
      if (word == first / 64) {
        bits &= ~std::uint64_t{0} << (first % 64);
      }
      if (bits != 0) {
        const std::uint32_t found = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
        return found < limit ? found : last;
      }
    }
    return last;
  }

  // `place_of(segment)` is where the caller keeps the place of a segment.
  template <typename PlaceOf>
  void add(SegmentId segment, std::uint32_t eviction_class, PlaceOf place_of) {
    const auto classes = static_cast<std::uint32_t>(groups_.size());
    std::uint32_t free = size_++;
    if (groups_[eviction_class].count == 0) {
      occupied_[eviction_class / 64] |= std::uint64_t{1} << (eviction_class % 64);
      const std::uint32_t next = next_class(eviction_class + 1, classes);
      groups_[eviction_class].begin = next == classes ? free : groups_[next].begin;
    }
    Group& own = groups_[eviction_class];
    const std::uint32_t end = own.begin + own.count++;
    // Each later group gives its first place to the group before and takes the one behind its last.
    for (std::uint32_t c = last_class(classes); free != end; c = last_class(c)) {
      Group& group = groups_[c];
      move(group.begin, free, place_of);
      free = group.begin++;
    }
    members_[end] = segment;
    place_of(segment) = end;
  }

  template <typename PlaceOf>
  void remove(SegmentId segment, std::uint32_t eviction_class, PlaceOf place_of) {
    const auto classes = static_cast<std::uint32_t>(groups_.size());
    Group& own = groups_[eviction_class];
    std::uint32_t free = own.begin + --own.count;
    move(free, place_of(segment), place_of);
    if (own.count == 0) {
      occupied_[eviction_class / 64] &= ~(std::uint64_t{1} << (eviction_class % 64));
    }
    --size_;
    for (std::uint32_t c = next_class(eviction_class + 1, classes); c < classes; c = next_class(c + 1, classes)) {
      Group& group = groups_[c];
      const std::uint32_t last = group.begin-- + group.count - 1;
      move(last, free, place_of);
      free = last;
    }
  }

  // `by` takes the place of a segment of the same class.
  template <typename PlaceOf>
  void replace(SegmentId segment, SegmentId by, PlaceOf place_of) {
    members_[place_of(segment)] = by;
    place_of(by) = place_of(segment);
  }

  [[nodiscard]] std::size_t bytes() const {
    return members_.bytes() + groups_.size() * sizeof(Group) + occupied_.size() * sizeof(std::uint64_t);
  }

 private:
  struct Group {
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
  };

  SegmentGroups(PageArray<SegmentId> members, std::uint32_t class_count)
      : members_(std::move(members)), groups_(class_count), occupied_(class_count / 64 + 1) {}

  // The last class below `end` that has segments. Requires: there is one.
  [[nodiscard]] std::uint32_t last_class(std::uint32_t end) const {
    std::uint32_t word = (end - 1) / 64;
    std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} >> (63 - (end - 1) % 64));
    while (bits == 0) {
      bits = occupied_[--word];
    }
    return word * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(bits));
  }
  template <typename PlaceOf>
  void move(std::uint32_t from, std::uint32_t to, PlaceOf place_of) {
    members_[to] = members_[from];
    place_of(members_[to]) = to;
  }

  PageArray<SegmentId> members_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> occupied_;  // one bit a class
  std::uint32_t size_ = 0;
};

}  // namespace cairn
