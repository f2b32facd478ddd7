// `cairn disk`: inspects, verifies and compacts the file of a disk tier. Needs no configuration.
//
// Errors: the file is not of a disk tier, is in use by a process, or cannot be read; no space for a new file. Damage in the file
// is not an error: the functions report it and return DiskEnd::kWrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::cli {

struct DiskOptions {
  std::string path = {};
  bool json = false;
  bool keys = false;                         // inspect: list the entries
  std::optional<std::uint32_t> blocks = {};  // compact: blocks of the new file; default: those of the old one
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

}  // namespace cairn::cli
