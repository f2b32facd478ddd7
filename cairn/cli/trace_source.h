// TraceSource: reads the rows of a trace file as requests of a replay.
//
// Each hash id becomes 512 equal tokens; the last one has as many as input_length leaves. If input_length is missing, all
// blocks are full; if it is too large, it is ignored. An answer has at least one token. Requests of a session_id run one after
// the other. Invalid rows are counted and left out.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/sim/replay.h"
#include "cairn/trace/trace_file.h"

namespace cairn::cli {

class TraceSource final : public sim::RequestSource {
 public:
  static constexpr std::uint32_t kTokensPerId = 512;

  enum class BadRows : std::uint8_t { kLeaveOut, kStop };  // kStop: at the first invalid row

  // Fails if the file cannot be opened.
  [[nodiscard]] static Result<TraceSource> open(const std::string& path, BadRows bad_rows);

  [[nodiscard]] bool next(sim::ReplayRequest& request) override;

  // The error that ended the source before the end of the file, if any.
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::uint64_t bad_rows() const { return bad_rows_; }
  // Messages for the first few: "line 12: no hash_ids, or none in them"
  [[nodiscard]] const std::vector<std::string>& bad_row_names() const { return bad_row_names_; }
  // An estimate of the number of rows, from the part of the file that was read.
  [[nodiscard]] double expected_rows() const;

 private:
  TraceSource(trace::TraceFile file, BadRows bad_rows, std::uint64_t bytes)
      : file_(std::move(file)), on_bad_row_(bad_rows), bytes_(bytes) {}
  [[nodiscard]] bool note_bad_row();

  trace::TraceFile file_;
  BadRows on_bad_row_;
  std::uint64_t bytes_;  // of the file
  trace::TraceRow row_;
  Status status_;
  bool ended_ = false;
  std::uint64_t rows_read_ = 0;
  std::uint64_t bad_rows_ = 0;
  std::vector<std::string> bad_row_names_;
};

// TraceMix: the requests of several traces, in order of their arrival, as if their clients ran at the same time.
//
// The first request of each trace arrives at 0. Equal ids in two traces are different tokens, and equal sessions different
// sessions. With a rate, all times and delays are stretched or compressed by one factor.
//
// Thread safety: one thread.
class TraceMix final : public sim::RequestSource {
 public:
  struct Options {
    std::vector<std::string> paths = {};
    TraceSource::BadRows bad_rows = TraceSource::BadRows::kLeaveOut;
    double rate = 0;  // requests a second, on average over the time of the traces; 0: as they are
  };
  // Fails if a file cannot be opened, and for a rate of traces that last no time. With a rate, reads the files once to count.
  [[nodiscard]] static Result<TraceMix> open(const Options& options);

  [[nodiscard]] bool next(sim::ReplayRequest& request) override;

  // As of a TraceSource, of all traces.
  [[nodiscard]] Status status() const;
  [[nodiscard]] std::uint64_t bad_rows() const;
  [[nodiscard]] std::vector<std::string> bad_row_names() const;
  [[nodiscard]] double expected_rows() const;

 private:
  struct Part {
    TraceSource source;
    sim::ReplayRequest head = {};  // the next request
    bool has_head = false;
    TimePoint begin{0};  // the arrival of the first request
  };

  TraceMix(std::vector<Part> parts, double stretch);
  void advance(std::size_t part);

  std::vector<Part> parts_;
  double stretch_;  // of times
};

}  // namespace cairn::cli
