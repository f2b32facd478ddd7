// reshard(): rewrites the files of ranks (disk_rank_files.h) for another grid of tensor- and pipeline-parallel ranks, so that a disk
// tier outlives a change of either size.
//
// Every block that has an entry is read from the old files, verified against the checksum of its entry, and written to the new
// ones, in the same place. The leader's file stays: checksums do not depend on how a block is split. A block that is wrong or
// cannot be read is dropped: its entry is erased. A file that both grids have stays as it is.
//
// Until all new files are complete and on the disk they have names that nobody looks for (PATH.l0-31.h0-3.reshard). Then
// PATH.reshard, a list of what is to be done, makes the change irrevocable; the new files get their names and the old ones are
// removed. Whenever it is stopped before that, the tier is as it was; after that, the next call finishes first. A call that returns
// leaves nothing of its own beside the files. It needs room for all new files while the old ones are still there.
//
// Errors: those of RankFiles::open(); kCorrupt if no block at all is right; heads or layers that the new grid cannot deal; no room (the message says how much is needed);
//         kCancelled if the progress callback returned false. The tier is then unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/tier/disk_check.h"

namespace cairn {

struct ReshardOptions {
  RankGrid grid = {};                            // the new one
  std::vector<std::uint32_t> stage_layers = {};  // of each pipeline stage; empty: as equal as possible (even_layers())
  bool dry_run = false;                          // reads nothing but the headers, changes nothing
};

struct Resharding {
  // Names of files, without "PATH."
  std::vector<std::string> from = {};
  std::vector<std::string> to = {};
  std::vector<std::string> kept = {};  // that both have
  std::uint64_t entries = 0;
  std::uint64_t moved = 0;        // blocks that are right, and are in the new files
  std::uint64_t wrong = 0;        // blocks that had wrong bytes or could not be read
  std::uint64_t new_bytes = 0;    // of the new files
  std::uint64_t old_bytes = 0;    // of the files that are removed
  std::uint64_t free_bytes = 0;   // of the file system, before
  bool finished_earlier = false;  // it first finished a call that had been killed
};

[[nodiscard]] Result<Resharding> reshard(const std::string& path, const ReshardOptions& options,
                                         const DiskProgress& progress = {});

// PATH.reshard: there is one only while a change of the grid is to be finished.
[[nodiscard]] std::string reshard_journal(const std::string& path);
// For a tier that starts anew: removes files_of_another_grid(), and what a reshard that was killed has left. Whoever holds the
// leader's file may do this.
[[nodiscard]] Status remove_other_grids(const std::string& path, std::string_view own);

}  // namespace cairn
