// TinyLfu: about how often a key was used of late.
//
// Does:     a count-min sketch of 4-bit counters, four for a key in four different words, each in a quarter of its word
//           of its own, all of which are used; a doorkeeper keeps keys seen once out of it. After ten uses for each block
//           of the pool all counts are halved and the doorkeeper is emptied.
// Errs:     too high, where keys collide; too low only by the halving.
// Owner:    a policy. Threads: none.
// Costs:    O(1), five cache misses; halving is O(capacity). 12 bytes a block, taken once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class TinyLfu {
 public:
  static constexpr std::uint32_t kMaxCount = 16;  // 15 in the sketch and one at the door

  [[nodiscard]] static Result<TinyLfu> create(std::uint32_t capacity, const KeySeed& seed = {});

  // One more use, and how many there are with it.
  std::uint32_t add(const BlockKey& key);
  [[nodiscard]] std::uint32_t estimate(const BlockKey& key) const;
  [[nodiscard]] std::size_t bytes() const { return words_.bytes() + door_.bytes(); }

 private:
  TinyLfu(std::uint32_t capacity, PageArray<std::uint64_t> words, PageArray<std::uint64_t> door, const KeySeed& seed);
  void halve();

  const std::uint64_t period_;
  const KeySeed seed_;
  std::uint64_t uses_ = 0;  // since the last halving, less what halving took away
  PageArray<std::uint64_t> words_;
  PageArray<std::uint64_t> door_;  // a Bloom filter of two bits a key
};

}  // namespace cairn
