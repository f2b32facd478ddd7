// RankMemory: what one rank has of every block: the engine's device memory, host memory and a file of its own, each as one
// layout for a group of layers.
//
// Does:     makes host memory and file as the leader's configuration says (host.blocks, disk.blocks), for the shapes that
//           the engine's device memory has. Host memory is pinned where that is a GPU's. Block i of a tier is block i of
//           every group.
// File:     disk.path + ".r<rank>of<ranks>", and ".g<group>" where there are several groups; blocks without entries: what
//           is in them the leader knows. One that fits is used as it is, whatever disk.opening says, so that a rank that
//           comes back finds its bytes; one that does not is replaced with `fresh`, if it is ours. A damaged file does not
//           keep the rank from coming up: it is repaired or replaced (tier/disk_opening.h), and what was lost is found
//           wrong by its checksums.
// Owner:    a value; layouts that others hold keep their memory alive.
// Threads:  immutable after make().
// Fails:    device memory that is not this rank's share of the model, says what differs; memory or a file that is not to
//           be had, by the key.
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

  // One for each group, in their order; none where there is no such tier.
  [[nodiscard]] std::span<const BlockLayoutPtr> layouts(CacheLevel level) const { return layouts_[index_of(level)]; }
  // What was written to the files survives a loss of power.
  void sync() const;
  // That the rank has of one block, in all groups.
  [[nodiscard]] std::uint64_t block_bytes() const;
  // What was wrong with the files that were there, and what became of them; empty if all was well.
  [[nodiscard]] const std::string& damage() const { return damage_; }

 private:
  RankMemory() = default;
  [[nodiscard]] Status add_host(const ManagerConfig& config);
  [[nodiscard]] Status add_disk(const ManagerConfig& config, std::uint32_t rank, std::uint32_t ranks);

  std::array<std::vector<BlockLayoutPtr>, kCacheLevels> layouts_;
  std::vector<DiskFile> files_;  // held for their locks
  std::string damage_;
};

}  // namespace cairn
