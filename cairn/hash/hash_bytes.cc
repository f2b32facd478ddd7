#include "cairn/hash/hash_bytes.h"

#include "cairn/hash/xxh3.h"

namespace cairn {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace cairn
