// SeedLineageHash: the older 128-bit lineage hash of the seeds, which did not keep the whole sequence hash. For recorded
// goldens and old peers only; Cairn itself uses BlockKey. The bytes of the two cannot be distinguished.
//
// Layout, from the most significant bit: mode (2 bits), position (P), parent fragment (R), current fragment (R). Mode 0 has
// P 8 and R 59, mode 1 P 16 and R 55, mode 2 P 24 and R 51. Fragments are low bits of sequence hashes. The last position of
// a mode keeps only as many bits of its own hash as its child, in the next mode, can hold.
//
// Thread safety: a plain value of 16 bytes.
// Errors: make() refuses a position beyond 24 bits.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/result.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

class SeedLineageHash {
 public:
  static constexpr std::uint32_t kMaxPosition = (1U << 24) - 1;

  [[nodiscard]] static Result<SeedLineageHash> make(std::uint64_t position, SequenceHash current,
                                                    std::optional<SequenceHash> parent);

  [[nodiscard]] std::uint32_t position() const;
  [[nodiscard]] std::uint64_t current_fragment() const;
  [[nodiscard]] std::uint64_t parent_fragment() const;
  [[nodiscard]] bool is_parent_of(const SeedLineageHash& child) const;

  [[nodiscard]] std::uint64_t high_word() const { return hi_; }
  [[nodiscard]] std::uint64_t low_word() const { return lo_; }

  friend bool operator==(const SeedLineageHash&, const SeedLineageHash&) = default;

 private:
  SeedLineageHash(std::uint64_t hi, std::uint64_t lo) : hi_(hi), lo_(lo) {}

  std::uint64_t hi_;
  std::uint64_t lo_;
};

}  // namespace cairn
