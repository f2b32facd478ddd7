// KeySeed: mixes block keys for hash tables and sketches. Without the seed nobody can choose keys that land in one
// bucket.
//
// Tables that find exactly what was put into them use the seed of the process: it changes where an entry lies and
// nothing else. Sketches, whose answers depend on the hash (evict/), are given a seed, so that a simulation can repeat
// a run.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

namespace cairn {

struct KeySeed {
  // Both odd. Known to everybody unless they are given: for simulations and tests.
  std::uint64_t first = 1;
  std::uint64_t second = 0x9E3779B97F4A7C15U;

  // Random, the same until the process ends.
  [[nodiscard]] static const KeySeed& of_process() {
    static const KeySeed kSeed = random();
    return kSeed;
  }
  [[nodiscard]] static KeySeed random();
  // The same for the same number.
  [[nodiscard]] static KeySeed from(std::uint64_t number);

  friend bool operator==(const KeySeed&, const KeySeed&) = default;

  // 64 well-mixed bits of a pair of words: the folded product of two words that only the owner of the seed knows.
  [[nodiscard]] constexpr std::uint64_t mix(std::uint64_t high, std::uint64_t low) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(high ^ first) * (low ^ second);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  // The same of anything with two words: a BlockKey.
  template <typename Key>
  [[nodiscard]] constexpr std::uint64_t mix(const Key& key) const {
    return mix(key.high_word(), key.low_word());
  }
};

}  // namespace cairn
