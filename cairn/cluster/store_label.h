// StoreLabel: what stands in front of a block's bytes in a store: which block it is, how large, and its checksum.
//
// 64 bytes, numbers with the least significant byte first:
//     0   "CAIRNBL1"
//     8   bytes of the block
//     16  tag, high and low word: the key, bound to its namespace
//     32  checksum of the block (transfer/checksum.h), bound to the tag
//     40  hash of the block's tokens; 0 if it is not known
//     48  zero
//     56  the first 8 bytes of SHA-256 over the 56 bytes before
//
// Errors: decode() returns kCorrupt for everything that encode() cannot have written.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/base/result.h"
#include "cairn/cluster/block_store.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

struct StoreLabel {
  std::uint64_t block_bytes = 0;
  BlockTag tag = {};
  Checksum checksum = {};
  std::uint64_t tokens_hash = 0;

  [[nodiscard]] StoreLabelBytes encode() const;
  [[nodiscard]] static Result<StoreLabel> decode(std::span<const std::byte> bytes);
  friend bool operator==(const StoreLabel&, const StoreLabel&) = default;
};

}  // namespace cairn
