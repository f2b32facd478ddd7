// OperationOutcomes: what became of loads and saves, from the leader to the workers of all ranks (RankBroadcast).
//
// An outcome covers all ranks together: a block is loaded when every rank has it. So all workers report the same.
// A rank that is not ready hears nothing. When one becomes ready, all ranks are sent the operations still in flight of
// the iterations so far: every other operation of those iterations has ended, whether or not its outcome was heard.
//
// Encoding, little-endian: magic u32 "CRNO", version u16, flags u16; count u32 of loads, each its id (u64, u32) and its
// loaded blocks (u32); count u32 of saves, each its id; finished_before u64; count u32 of those in flight, each its id; hash
// u64 of all bytes before it.
//
// Thread safety: a plain value.
// Errors: decode() returns kCorrupt for bytes that do not add up, or of another version; it allocates nothing before the
// bytes for it are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/connector/slot.h"

namespace cairn {

struct OperationOutcomes {
  static constexpr std::uint16_t kVersion = 2;

  struct Load {
    OperationId id;
    std::uint32_t loaded_blocks = 0;  // from the first on
    friend bool operator==(const Load&, const Load&) = default;
  };
  std::vector<Load> loads = {};
  std::vector<OperationId> saves = {};  // over, saved or not
  // All operations of iterations before this one have ended, except those in flight. 0: says nothing about them.
  std::uint64_t finished_before = 0;
  std::vector<OperationId> in_flight = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  [[nodiscard]] static Result<OperationOutcomes> decode(std::span<const std::byte> bytes);
  friend bool operator==(const OperationOutcomes&, const OperationOutcomes&) = default;
};

}  // namespace cairn
