// KeySeed: mixes keys of two words (BlockKey) for hash tables and sketches. Without the seed nobody can choose keys that
// fall into one bucket.
//
// Exact tables use the seed of the process, because it only changes where an entry lies. Sketches (evict/), whose answers
// depend on the hash, are given a seed, so that a simulation can repeat a run.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

namespace cairn {

struct KeySeed {
  // Both are odd. The defaults are public: use them in simulations and tests only.
  std::uint64_t first = 1;
  std::uint64_t second = 0x9E3779B97F4A7C15U;

  // A random seed that stays the same until the process ends.
  [[nodiscard]] static const KeySeed& of_process() {
    static const KeySeed kSeed = random();
    return kSeed;
  }
  [[nodiscard]] static KeySeed random();
  // Always the same seed for the same number.
  [[nodiscard]] static KeySeed from(std::uint64_t number);

  friend bool operator==(const KeySeed&, const KeySeed&) = default;

  // 64 mixed bits of a pair of words, for tables: the folded product of the words, each XORed with a part of the seed.
  [[nodiscard]] constexpr std::uint64_t mix(std::uint64_t high, std::uint64_t low) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(high ^ first) * (low ^ second);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  template <typename Key>
  [[nodiscard]] constexpr std::uint64_t mix(const Key& key) const {
    return mix(key.high_word(), key.low_word());
  }
};

// 64 well-mixed bits of a key, for sketches and samples: slower than KeySeed::mix(), but every bit of the key reaches
// every bit of the hash also with the default seed. Changing it changes the results of simulations.
template <typename Key>
[[nodiscard]] constexpr std::uint64_t hash_of(const Key& key, const KeySeed& seed) {
  std::uint64_t h = (key.high_word() * seed.first) ^ (key.low_word() * seed.second);
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  return h ^ (h >> 32);
}

}  // namespace cairn
