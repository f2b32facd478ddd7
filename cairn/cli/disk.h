// `cairn disk`: inspects, verifies and compacts the file of a disk tier, and rewrites the files of ranks for another grid. Needs no configuration.
//
// Errors: the file is not of a disk tier, is in use by a process, or cannot be read; no space for a new file. Damage in the file
// is not an error: the functions report it and return DiskEnd::kWrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::cli {

struct DiskOptions {
  std::string path = {};
  bool json = false;
  bool keys = false;                         // inspect: list the entries
  std::optional<std::uint32_t> blocks = {};  // compact: blocks of the new file; default: those of the old one
  // reshard:
  std::uint32_t tensor = 1;
  std::uint32_t pipeline = 1;
  std::vector<std::uint32_t> layers = {};  // of each pipeline stage; default: as equal as possible
  bool dry_run = false;
};

struct DiskStreams {
  std::ostream& out;
  std::ostream& log;
  const std::atomic<bool>& stop;  // set by Ctrl-C: returns kCancelled and leaves the file as it was
  const Clock& clock = steady_clock();
  bool log_is_a_terminal = false;  // shows progress every second
};

enum class DiskEnd : std::uint8_t { kGood, kWrong };

// Reads the superblock and the entries, but no blocks.
[[nodiscard]] Result<DiskEnd> inspect_disk(const DiskOptions& options, const DiskStreams& streams);
// Reads every block.
[[nodiscard]] Result<DiskEnd> verify_disk(const DiskOptions& options, const DiskStreams& streams);
[[nodiscard]] Result<DiskEnd> compact_disk(const DiskOptions& options, const DiskStreams& streams);
// Rewrites the files of ranks. kWrong if blocks were dropped.
[[nodiscard]] Result<DiskEnd> reshard_disk(const DiskOptions& options, const DiskStreams& streams);

}  // namespace cairn::cli
