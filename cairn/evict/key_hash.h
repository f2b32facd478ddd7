// hash_of: 64 well-mixed bits of a block's key, for tables and samples. Not for anything that leaves the process.
#pragma once

#include <cstdint>

#include "cairn/tokens/block_key.h"

namespace cairn {

[[nodiscard]] constexpr std::uint64_t hash_of(const BlockKey& key) {
  std::uint64_t h = key.high_word() ^ (key.low_word() * 0x9E3779B97F4A7C15U);
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  return h ^ (h >> 32);
}

}  // namespace cairn
