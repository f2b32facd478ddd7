// `cairn disk`: what is in the file of a disk tier, whether its blocks are right, and a new one of those that are.
//
// Reads:    only the file: no model and no configuration. A file that a process has in use is refused.
// Ends:     kWrong where something in the file is wrong. Fails where nothing can be said or done: it is not a disk tier's
//           file, is in use, cannot be read, or there is no room for a new one.
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
  bool keys = false;                         // inspect: lists the entries
  std::optional<std::uint32_t> blocks = {};  // compact: room of the new file; none: that of the old one
};

struct DiskStreams {
  std::ostream& out;
  std::ostream& log;
  const std::atomic<bool>& stop;  // set by Ctrl-C: kCancelled, and the file is as it was
  const Clock& clock = steady_clock();
  bool log_is_a_terminal = false;  // only there: a line a second while it takes longer
};

enum class DiskEnd : std::uint8_t { kGood, kWrong };

// From the superblock and the entries alone, without reading blocks.
[[nodiscard]] Result<DiskEnd> inspect_disk(const DiskOptions& options, const DiskStreams& streams);
// Reads every block.
[[nodiscard]] Result<DiskEnd> verify_disk(const DiskOptions& options, const DiskStreams& streams);
[[nodiscard]] Result<DiskEnd> compact_disk(const DiskOptions& options, const DiskStreams& streams);

}  // namespace cairn::cli
