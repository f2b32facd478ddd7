// hash_of: 64 well-mixed bits of a block's key, for sketches and samples. Not for anything that leaves the process.
#pragma once

#include <cstdint>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/key_seed.h"

namespace cairn {

[[nodiscard]] constexpr std::uint64_t hash_of(const BlockKey& key, const KeySeed& seed) {
  std::uint64_t h = (key.high_word() * seed.first) ^ (key.low_word() * seed.second);
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  return h ^ (h >> 32);
}

}  // namespace cairn
