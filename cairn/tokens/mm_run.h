// MmRun: the placeholder tokens of one multimodal item (an image, a clip) in a sequence. Their ids mean nothing: the
// block hash takes the item's hash and the place inside the item instead.
//
// Threads:  a plain value.
// Fails:    check_mm_runs names the first run that is empty, overflows, or overlaps or precedes the one before it.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/base/result.h"

namespace cairn {

struct MmRun {
  std::uint64_t offset = 0;  // of its first token, counted from the start of the sequence
  std::uint32_t length = 0;  // in tokens
  std::uint64_t mm_hash = 0;
  // Placeholders of the same item that stand before this run: 0 unless the item was cut in two.
  std::uint32_t item_offset = 0;

  // Of a checked run.
  [[nodiscard]] constexpr std::uint64_t end() const { return offset + length; }

  friend bool operator==(const MmRun&, const MmRun&) = default;
};

[[nodiscard]] Status check_mm_runs(std::span<const MmRun> runs);

}  // namespace cairn
