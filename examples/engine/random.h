// Random: numbers from a seed, the same on every machine.
#pragma once

#include <cstdint>

namespace cairn::engine {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // One round of a mixer over a counter: every seed gives a different stream.
  [[nodiscard]] std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }
  // lowest to highest, both included.
  [[nodiscard]] std::uint32_t between(std::uint32_t lowest, std::uint32_t highest) {
    return lowest + static_cast<std::uint32_t>(next() % (std::uint64_t{highest} - lowest + 1));
  }
  // -1 to 1; 24 bits, so that each value is exact.
  [[nodiscard]] float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23F - 1.0F; }

 private:
  std::uint64_t state_;
};

}  // namespace cairn::engine
