// SimTable<Key, Value>: the FlatTable of simulations, for keys that are numbers or BlockKeys. Internal.
//
// Its hash has no seed, so that a simulation visits entries in the same order in every run. Requires: a default Value is
// vacant(), and a stored one is not.
#pragma once

#include <bit>
#include <cstdint>

#include "cairn/base/flat_table.h"
#include "cairn/tokens/block_key.h"

namespace cairn::sim::internal {

template <typename Key, typename Value>
struct SimTableTraits {
  static std::uint64_t hash(std::uint64_t key) { return key * 0x9E3779B97F4A7C15U; }
  static std::uint64_t hash(const BlockKey& key) {
    return hash(key.high_word() ^ std::rotl(key.low_word(), 23) ^ (key.low_word() >> 7));
  }
  static bool is_vacant(const Key& /*key*/, const Value& value) { return value.vacant(); }
  static constexpr std::uint32_t kMaxPercent = 50;
};

template <typename Key, typename Value>
using SimTable = FlatTable<Key, Value, SimTableTraits<Key, Value>>;

}  // namespace cairn::sim::internal
