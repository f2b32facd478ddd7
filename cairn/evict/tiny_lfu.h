// TinyLfu: an estimate of how often a key was used recently.
//
// A count-min sketch of 4-bit counters: each key has four counters in four different words, each in its own quarter of
// the word. A doorkeeper (a Bloom filter) keeps keys that were seen once out of the sketch. After ten uses for each
// block of the pool, all counts are halved and the doorkeeper is emptied. Estimates are too high if keys collide, and
// too low only by the halving.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a use, five cache misses; halving is O(capacity). 12 bytes a block, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class TinyLfu {
 public:
  static constexpr std::uint32_t kMaxCount = 16;  // 15 in the sketch and one in the doorkeeper

  [[nodiscard]] static Result<TinyLfu> create(std::uint32_t capacity, const KeySeed& seed = {});

  // Counts one more use, and returns the estimate with it.
  std::uint32_t add(const BlockKey& key);
  [[nodiscard]] std::uint32_t estimate(const BlockKey& key) const;
  [[nodiscard]] std::size_t bytes() const { return words_.bytes() + door_.bytes(); }

 private:
  TinyLfu(std::uint32_t capacity, PageArray<std::uint64_t> words, PageArray<std::uint64_t> door, const KeySeed& seed);
  void halve();

  const std::uint64_t period_;
  const KeySeed seed_;
  std::uint64_t uses_ = 0;  // halved with the counts
  PageArray<std::uint64_t> words_;
  PageArray<std::uint64_t> door_;  // a Bloom filter of two bits a key
};

}  // namespace cairn
