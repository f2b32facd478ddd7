#include "cairn/hash/key_seed.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "cairn/hash/secret_bytes.h"

namespace cairn {
namespace {

// SplitMix64.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace

KeySeed KeySeed::random() {
  std::array<std::byte, sizeof(KeySeed)> bytes;
  internal::fill_random(bytes);
  KeySeed seed;
  std::memcpy(&seed, bytes.data(), bytes.size());
  return {.first = seed.first | 1, .second = seed.second | 1};
}

KeySeed KeySeed::from(std::uint64_t number) {
  const std::uint64_t first = next(number);
  return {.first = first | 1, .second = next(number) | 1};
}

}  // namespace cairn
