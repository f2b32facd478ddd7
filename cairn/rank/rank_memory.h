// RankMemory: one rank's part of every block: the engine's device memory, host memory and a file of its own, each with one
// layout for every group of layers.
//
// Host memory and file are made as the leader's configuration says (host.blocks, disk.blocks), with the shapes of the
// engine's device memory. Host memory is pinned if the device memory is a GPU's. Block i of a tier is block i of every group.
//
// The file is disk.path + ".r<rank>of<ranks>", and ".g<group>" if there are several groups. It has no entries: the leader
// knows what is in its blocks. A file that fits is used as it is, whatever disk.opening says, so that a rank that comes back
// finds its bytes. A file that does not fit is replaced if disk.opening is `fresh` and the file is ours. A damaged file is
// repaired or replaced (tier/disk_opening.h); lost blocks are found by their checksums.
//
// Thread safety: immutable after make().
// Ownership:     a value; layouts that others hold keep their memory alive.
// Errors:        make(): the device memory is not this rank's share of the model (says what differs), or memory or a file
//                cannot be had (names the key).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/layout/layer_groups.h"
#include "cairn/manager/manager_config.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

class RankMemory {
 public:
  [[nodiscard]] static Result<RankMemory> make(const ManagerConfig& config, const LayoutGroups& device,
                                               std::uint32_t rank, std::uint32_t ranks);

  // One for each group, in order; empty if there is no such tier.
  [[nodiscard]] std::span<const BlockLayoutPtr> layouts(CacheLevel level) const { return layouts_[index_of(level)]; }
  // Flushes the files, so that their blocks survive a loss of power.
  void sync() const;
  // Size of the rank's part of one block, all groups together.
  [[nodiscard]] std::uint64_t block_bytes() const;
  // What was wrong with existing files, and what was done about it; empty if nothing was.
  [[nodiscard]] const std::string& damage() const { return damage_; }

 private:
  RankMemory() = default;
  [[nodiscard]] Status add_host(const ManagerConfig& config);
  [[nodiscard]] Status add_disk(const ManagerConfig& config, std::uint32_t rank, std::uint32_t ranks);

  std::array<std::vector<BlockLayoutPtr>, kCacheLevels> layouts_;
  std::vector<DiskFile> files_;  // keep their locks
  std::string damage_;
};

}  // namespace cairn
