// OperationNotice: what became of loads and saves, from the leader to the worker sides of all ranks (RankBroadcast).
//
// Does:     says it for all ranks together: a block arrived when it did on every rank. So every worker reports the same.
// Missed:   a rank hears nothing while it is not ready. When one is, all are told what is still under way of the iterations
//           before: whatever else was given out in them is over, and who heard of no end knows it by this.
// Encoded:  little-endian: magic u32 "CRNO", version u16, flags u16, count u32 of loads, each its id (u64, u32) and what
//           arrived (u32), count u32 of saves, each its id, over_before u64, count u32 of those under way, each its id,
//           hash u64 of all before it. Another version is refused by name.
// Fails:    decode(): kCorrupt for what does not add up; nothing is allocated before the bytes for it are there.
// Threads:  a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/connector/slot_operation.h"

namespace cairn {

struct OperationNotice {
  static constexpr std::uint16_t kVersion = 2;

  struct Load {
    OperationId id;
    std::uint32_t arrived = 0;  // blocks from the first on
    friend bool operator==(const Load&, const Load&) = default;
  };
  std::vector<Load> loads = {};
  std::vector<OperationId> saves = {};  // over, saved or not
  // All that was given out in iterations before this number is over, but for those under way. 0: nothing is said of them.
  std::uint64_t over_before = 0;
  std::vector<OperationId> under_way = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  [[nodiscard]] static Result<OperationNotice> decode(std::span<const std::byte> bytes);
  friend bool operator==(const OperationNotice&, const OperationNotice&) = default;
};

}  // namespace cairn
