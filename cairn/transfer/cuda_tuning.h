// CudaTuning: which way a GPU's copies go, by their sizes. The defaults were measured on an H200; calibrate() measures
// them on the machine at hand, and the text form is how they are kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

struct CudaTuning {
  std::uint32_t multiprocessors = 16;              // that a copy takes at most
  std::uint64_t piece_bytes = 32 * 1024 * 1024;    // gathered and moved at once
  std::uint32_t pieces = 3;                        // under way, in each direction
  std::uint64_t stage_from_bytes = 64 * 1024;      // host blocks of this size and more are staged; smaller ones are
                                                   // read or written by the kernel
  std::uint64_t engines_from_bytes = 1024 * 1024;  // runs of this size and more that nobody verifies need no kernel

  // "multiprocessors=16 piece_bytes=16777216 ..."; parse() fails on names and numbers that are none, and says which.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static Result<CudaTuning> parse(std::string_view text);

  friend bool operator==(const CudaTuning&, const CudaTuning&) = default;
};

}  // namespace cairn
