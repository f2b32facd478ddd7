// CudaTuning: which method a GPU uses for copies of which size. The defaults were measured on an H200; calibrate_cuda() measures
// them on the machine at hand, and the text form is for keeping them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

struct CudaTuning {
  std::uint32_t multiprocessors = 16;              // that a copy uses at most
  std::uint64_t piece_bytes = 32 * 1024 * 1024;    // of a part that is gathered and moved at once
  std::uint32_t pieces = 3;                        // parts in flight in each direction
  std::uint64_t stage_from_bytes = 64 * 1024;      // host blocks of this size and more are staged; smaller ones are
                                                   // read or written by the kernel
  std::uint64_t engines_from_bytes = 1024 * 1024;  // runs of this size and more that are not verified need no kernel

  // "multiprocessors=16 piece_bytes=16777216 ..."; parse() fails on an unknown name or a wrong number, and says which.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static Result<CudaTuning> parse(std::string_view text);

  friend bool operator==(const CudaTuning&, const CudaTuning&) = default;
};

}  // namespace cairn
