// IterationMetadata: what the scheduler's side sends to every worker for one iteration.
//
// Names the loads and saves of the iteration with their device blocks, and the saves that must be over before the engine
// writes to their blocks. Requests that only run are not in it: an iteration without loads and saves takes under sixty
// bytes. Iterations count from the start of their scheduler, which `leader` names.
//
// Encoding, little-endian: magic u32 "CRNI", version u16, flags u16, leader (u64, u64), iteration u64, three counts u32,
// entries, hash u64 of all bytes before it. A load is its id (u64, u32), flags u8 (1: in step, 2: the request id is a text),
// the request (u64, or u32 bytes and the text) and its blocks (u32 count, u32 each); a save the same; a fence is the id of a
// save and its blocks.
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
#include "cairn/wire/rank_address.h"

namespace cairn {

struct IterationMetadata {
  static constexpr std::uint16_t kVersion = 3;

  LeaderId leader = {};
  std::uint64_t iteration = 0;
  std::vector<OperationPtr> loads = {};
  std::vector<OperationPtr> saves = {};
  // The engine writes to the blocks of these saves in this iteration: the worker waits until they have ended, or fails
  // them. Decoded, they have no request.
  std::vector<OperationPtr> fences = {};

  // Replaces `out` and reuses its memory.
  void encode(std::vector<std::byte>& out) const;
  [[nodiscard]] static Result<IterationMetadata> decode(std::span<const std::byte> bytes);
  // Compares what is encoded.
  friend bool operator==(const IterationMetadata& a, const IterationMetadata& b);
};

}  // namespace cairn
