// RankMemory: one rank's part of every block: the engine's device memory, host memory and a file, each with one layout for every
// group of layers.
//
// Host memory and file are made as the leader's configuration says (host.blocks, disk.blocks), with the shapes of the
// engine's device memory. Host memory is pinned if the device memory is a GPU's. Block i of a tier is block i of every group.
//
// Ranks that hold the same part (replicas) on one machine share host memory, which the leader makes, and the file, which the
// keeper among them makes. Over TCP each has a copy (".c1" after the name of replica 1).
//
// The file is disk.path with the layers and heads that it holds (".l0-31.h4-7"), so that it is found under every grid of ranks
// with the same part; with several groups of layers the tensor rank and the group (".l0-31.t1of2.g0"). It has no entries: the
// leader knows what is in its blocks. A file that fits is used as it is, whatever disk.opening says, so that a rank that comes back
// finds its bytes. A file that does not fit is replaced if disk.opening is `fresh` and the file is ours. A damaged file is
// repaired or replaced (tier/disk_opening.h); lost blocks are found by their checksums. If ranks of another grid left files with
// other parts of the same blocks, the rank is refused and told how to keep them (tier/disk_reshard.h); `fresh` removes them.
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
#include "cairn/transfer/copy_plan.h"
#include "cairn/wire/owned_fd.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

// Where the rank keeps its part, as the leader's welcome says.
struct RankStorage {
  RankStore store = RankStore::kOwn;
  SharedMemoryPtr host_memory = {};
};

class RankMemory {
 public:
  [[nodiscard]] static Result<RankMemory> make(const ManagerConfig& config, const LayoutGroups& device,
                                               const RankClaim& claim, const RankStorage& storage = {});

  // One for each group, in order; empty if there is no such tier.
  [[nodiscard]] std::span<const BlockLayoutPtr> layouts(CacheLevel level) const { return layouts_[index_of(level)]; }
  // Flushes the files, so that their blocks survive a loss of power.
  void sync() const;
  // Size of the rank's part of one block, all groups together.
  [[nodiscard]] std::uint64_t block_bytes() const;
  // How the rows of its part are numbered in the whole model: for plans of whole blocks. With several groups of layers they
  // are numbered in each group, because the model does not say the shape of a group.
  [[nodiscard]] const BlockPart& numbering() const { return numbering_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  // What was wrong with existing files, and what was done about it; empty if nothing was.
  [[nodiscard]] const std::string& damage() const { return damage_; }
  // Whether the space of its files is reserved (memory/preallocate.h). Of a file that replicas share, the keeper says so.
  [[nodiscard]] bool is_reserved() const;

 private:
  RankMemory() = default;
  [[nodiscard]] Status take_device(const ManagerConfig& config, const LayoutGroups& device, const RankClaim& claim,
                                   RankStore store);
  [[nodiscard]] Status add_host(const ManagerConfig& config, const SharedMemoryPtr& shared);
  [[nodiscard]] Status add_disk(const ManagerConfig& config, RankStore store);
  [[nodiscard]] Result<DiskFile> open_part(const std::string& path, const DiskGeometry& geometry, DiskOpening opening,
                                           RankStore store);

  std::array<std::vector<BlockLayoutPtr>, kCacheLevels> layouts_;
  std::vector<DiskFile> files_;  // keep their locks
  std::string damage_;
  std::vector<OwnedFd> seats_;  // in files that it shares
  std::uint32_t rank_ = 0;
  std::uint32_t replica_ = 0;  // among the ranks that hold the same
  std::string name_;           // of its part, in the names of files
  BlockPart numbering_;
};

}  // namespace cairn
