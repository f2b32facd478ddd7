// DeviceBlockUse: which device blocks of the engine are in the block tables of live requests, and which of them a load
// writes to.
//
// A block that a request computes, or that a load fills for it, belongs to that request alone. A block whose KV the engine
// had in its own prefix cache may be in the tables of any number of requests: it is no longer written to.
//
// Thread safety: none; the scheduler's thread alone.
// Ownership: SchedulerConnector. 12 bytes for each device block of the engine.
// Complexity: every call takes time for the blocks that it names, whatever the number of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/ids.h"

namespace cairn {

class DeviceBlockUse {
 public:
  explicit DeviceBlockUse(std::uint32_t device_blocks) : uses_(device_blocks), named_in_(device_blocks) {}

  // Adds blocks to the table of a request. Returns the first block that is in `blocks` twice, and adds nothing then.
  // Requires: every block is one of the engine's.
  [[nodiscard]] std::optional<BlockId> add(std::span<const BlockId> blocks);
  // The first block of a request's table that the request may not have; std::nullopt if it may have all of them. The
  // first `shared` hold KV of the engine's prefix cache: no load may still write to them. The request writes to the
  // others: they are in no other table.
  [[nodiscard]] std::optional<BlockId> find_conflict(std::span<const BlockId> blocks, std::size_t shared) const;
  // Takes blocks out of the table of a request. Requires: they were added for it.
  void remove(std::span<const BlockId> blocks);

  // A load is to write to the blocks, which are one request's. While it does, no other request can share them.
  void begin_load(std::span<const BlockId> blocks);
  void end_load(std::span<const BlockId> blocks);

 private:
  static constexpr std::uint32_t kLoading = std::uint32_t{1} << 31;

  std::vector<std::uint32_t> uses_;      // tables that have the block; kLoading while a load writes to it
  std::vector<std::uint64_t> named_in_;  // the latest call of add() that named the block
  std::uint64_t calls_ = 0;              // of add()
};

}  // namespace cairn
