// IterationMetadata: what the scheduler's side tells every worker of one iteration; the worker needs nothing else of it.
//
// Does:     names what is loaded and saved, into and from which device blocks, and which saves must be over before the
//           engine writes to their blocks. Requests that only run are not in it: an iteration
//           without tier work is under sixty bytes. Iterations count from the start of their scheduler, which `leader` names.
// Encoded:  little-endian: magic u32 "CRNI", version u16, flags u16, leader (u64, u64), iteration u64, counts, entries, hash u64 of all
//           before it. Another version is refused by name.
//           A load is its id (u64, u32), flags u8 (1: in step, 2: the request is a text), the request (u64, or u32 bytes
//           and the text) and its blocks (u32 count, u32 each); a save the same, never in step; a fence id and blocks.
// Fails:    decode(): kCorrupt for what does not add up; nothing is allocated before the bytes for it are there.
// Threads:  a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot_operation.h"
#include "cairn/wire/leader_id.h"

namespace cairn {

struct IterationMetadata {
  static constexpr std::uint16_t kVersion = 2;

  struct Load {
    OperationId id;
    RequestId request;
    bool in_step = false;  // the request computes in this very iteration: its layers are waited for one by one
    std::vector<BlockId> blocks;
    friend bool operator==(const Load&, const Load&) = default;
  };
  struct Save {
    OperationId id;
    RequestId request;
    std::vector<BlockId> blocks;
    friend bool operator==(const Save&, const Save&) = default;
  };
  // The engine writes to these blocks in this iteration: the save reads them no longer, or is told as failed.
  struct Fence {
    OperationId save;
    std::vector<BlockId> blocks;
    friend bool operator==(const Fence&, const Fence&) = default;
  };

  LeaderId leader = {};
  std::uint64_t iteration = 0;
  std::vector<Load> loads = {};
  std::vector<Save> saves = {};
  std::vector<Fence> fences = {};

  // Replaces `out`, whose memory is used again.
  void encode(std::vector<std::byte>& out) const;
  [[nodiscard]] static Result<IterationMetadata> decode(std::span<const std::byte> bytes);
  friend bool operator==(const IterationMetadata&, const IterationMetadata&) = default;
};

}  // namespace cairn
