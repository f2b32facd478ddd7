// IdentitySource: the ids and random numbers that make one sequence different from another.
//
// Numbers partial blocks without repeating a number, and draws random numbers from a seed: the same ones in every run.
//
// Thread safety: not thread-safe.
// Ownership:  must outlive the sequences that draw from it.
#pragma once

#include <cstdint>

#include "cairn/sim/move_block.h"

namespace cairn::sim {

class IdentitySource {
 public:
  explicit IdentitySource(std::uint64_t seed = 0) : state_(seed) {}

  [[nodiscard]] PartialId next_partial() { return PartialId{next_partial_++}; }
  // SplitMix64.
  [[nodiscard]] std::uint64_t random() {
    std::uint64_t mixed = state_ += 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
  }

 private:
  std::uint64_t state_;
  std::uint64_t next_partial_ = 0;
};

}  // namespace cairn::sim
