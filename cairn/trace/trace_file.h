// TraceFile: the rows of a trace file, one after the other, so that a file of any size needs the memory of one row.
//
// Does:     reads Mooncake's JSONL (trace_row.h), plain or compressed with gzip. Blank lines are passed over.
// Owner:    move-only; owns the open file.
// Threads:  one.
// Fails:    open() on a file that cannot be opened. next() on a bad row, which it names by its line and leaves behind:
//           the reader goes on with the row after it; and on a file that cannot be read further, which ends it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/result.h"
#include "cairn/trace/trace_row.h"

namespace cairn::trace {

class TraceFile {
 public:
  [[nodiscard]] static Result<TraceFile> open(const std::string& path);
  TraceFile(TraceFile&&) noexcept;
  TraceFile& operator=(TraceFile&&) noexcept;
  ~TraceFile();

  enum class Next : std::uint8_t { kRow, kBadRow, kEnd, kBroken };
  // kRow: `row` is the next one. kBadRow, kBroken: error() says why.
  [[nodiscard]] Next next(TraceRow& row);

  // "line 12: no hash_ids, or none in them"
  [[nodiscard]] const std::string& error() const { return error_; }
  // Of the row that next() gave last, counted from 1.
  [[nodiscard]] std::uint64_t line() const { return line_; }
  // As they are on disk.
  [[nodiscard]] std::uint64_t bytes_read() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  class Lines;
  TraceFile(std::string path, std::unique_ptr<Lines> lines);

  std::string path_;
  std::unique_ptr<Lines> lines_;
  std::uint64_t line_ = 0;
  std::string error_;
};

}  // namespace cairn::trace
