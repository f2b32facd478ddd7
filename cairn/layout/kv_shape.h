// KvShape: the dimensions of a block of one group of layers: layers x K/V x tokens x heads x elements of a head.
//
// A row is the elements of one head of one token. It is contiguous in every arrangement; layouts place rows, transfers copy
// rows and checksums are made by rows. Rows are numbered in the same order in every arrangement: by layer, then K/V, then
// token, then head.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"

namespace cairn {

struct KvShape {
  std::uint32_t layers = 0;
  std::uint32_t kv = 2;            // 2: keys and values; 1: one tensor for both (MLA, a state)
  std::uint32_t page_size = 0;     // tokens a block; 1 for a state
  std::uint32_t heads = 0;         // of K/V; 1 if there is only an inner dimension
  std::uint32_t head_size = 0;     // elements of a head, or the inner dimension
  std::uint32_t element_bits = 0;  // 4 to 64

  // Every number must be at least 1; at most 65,536 layers; rows of whole bytes; at most 2^32 words of 8 bytes a block when
  // each row is padded to words (at most 32 GiB, so that no product below overflows).
  [[nodiscard]] Status validate() const;

  [[nodiscard]] std::uint64_t row_bytes() const { return std::uint64_t{head_size} * element_bits / 8; }
  [[nodiscard]] std::uint64_t rows() const { return std::uint64_t{layers} * kv * page_size * heads; }
  [[nodiscard]] std::uint64_t block_bytes() const { return rows() * row_bytes(); }
  [[nodiscard]] std::uint64_t row(std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token,
                                  std::uint32_t head) const {
    return ((std::uint64_t{layer} * kv + k_or_v) * page_size + token) * heads + head;
  }

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

}  // namespace cairn
