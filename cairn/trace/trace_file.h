// TraceFile: reads a trace file row by row, so that a file of any size needs the memory of one row. The format is
// Mooncake's JSONL (trace_row.h), plain or compressed with gzip. Blank lines are skipped.
//
// Thread safety: one thread at a time.
// Ownership: owns the open file.
// Errors: open() fails if the file cannot be opened. next() reports a bad row with its line, and goes on with the next row
// when it is called again; it reports a read error with kBroken, which ends the file.
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
  // kRow: `row` is the next row. kBadRow, kBroken: error() has the message.
  [[nodiscard]] Next next(TraceRow& row);

  // "line 12: no hash_ids, or none in them"
  [[nodiscard]] const std::string& error() const { return error_; }
  // The line of the row that next() returned last, from 1.
  [[nodiscard]] std::uint64_t line() const { return line_; }
  // Of the file as it is on disk, compressed or not.
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
