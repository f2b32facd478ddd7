// MmRun: the placeholder tokens of one multimodal item (an image, a clip) in a sequence. The ids of these tokens are
// ignored: the block hash uses the hash of the item and the index in the item instead.
//
// Thread safety: a plain value.
// Errors: check_mm_runs() names the first run that is empty, overflows, or overlaps or precedes the run before it.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/base/result.h"

namespace cairn {

struct MmRun {
  std::uint64_t offset = 0;  // of its first token, from the start of the sequence
  std::uint32_t length = 0;  // in tokens
  std::uint64_t mm_hash = 0;
  // How many placeholders of the same item come before this run: 0 unless the item was split.
  std::uint32_t item_offset = 0;

  // Requires: the run was checked.
  [[nodiscard]] constexpr std::uint64_t end() const { return offset + length; }

  friend bool operator==(const MmRun&, const MmRun&) = default;
};

[[nodiscard]] Status check_mm_runs(std::span<const MmRun> runs);

}  // namespace cairn
