#include "cairn/cli/trace_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::cli {
namespace {

constexpr std::size_t kNamedRows = 10;

Duration from_ms(double ms) { return Duration(static_cast<Duration::rep>(std::llround(ms * 1e6))); }

// Turns the name of a session into a number; 0 for no session.
std::uint64_t session_number(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a, which is the same on every machine
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return name.empty() ? 0 : std::max<std::uint64_t>(hash, 1);
}

void write_prompt(const trace::TraceRow& row, std::vector<sim::TokenRun>& prompt) {
  const std::uint64_t most = row.hash_ids.size() * std::uint64_t{TraceSource::kTokensPerId};
  std::uint64_t left = row.input_tokens == 0 ? most : std::min(row.input_tokens, most);
  prompt.clear();
  for (const std::uint64_t id : row.hash_ids) {
    if (left == 0) {
      break;
    }
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, TraceSource::kTokensPerId));
    prompt.push_back({static_cast<Token>(id), count});
    left -= count;
  }
}

}  // namespace

Result<TraceSource> TraceSource::open(const std::string& path, BadRows bad_rows) {
  CAIRN_TRY_ASSIGN(trace::TraceFile file, trace::TraceFile::open(path));
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);  // fails for a pipe
  return TraceSource(std::move(file), bad_rows, error ? 0 : bytes);
}

bool TraceSource::next(sim::ReplayRequest& request) {
  while (!ended_) {
    switch (file_.next(row_)) {
      case trace::TraceFile::Next::kRow:
        ++rows_read_;
        request.line = file_.line();
        request.arrival = from_ms(row_.timestamp_ms);
        request.output_tokens = std::max<std::uint64_t>(row_.output_tokens, 1);
        request.session = session_number(row_.session);
        request.delay = row_.delay_ms ? std::optional(from_ms(*row_.delay_ms)) : std::nullopt;
        write_prompt(row_, request.prompt);
        return true;
      case trace::TraceFile::Next::kBadRow:
        ended_ = !note_bad_row();
        break;
      case trace::TraceFile::Next::kEnd:
        ended_ = true;
        break;
      case trace::TraceFile::Next::kBroken:
        status_ = fail(ErrorCode::kCorrupt, file_.error());
        ended_ = true;
        break;
    }
  }
  return false;
}

// Whether to continue.
bool TraceSource::note_bad_row() {
  ++bad_rows_;
  if (bad_row_names_.size() < kNamedRows) {
    bad_row_names_.push_back(file_.error());
  }
  if (on_bad_row_ == BadRows::kStop) {
    status_ = fail(ErrorCode::kCorrupt,
                   str_cat(file_.path(), ", ", file_.error(), "; fix the row, or remove --strict to skip it"));
    return false;
  }
  return true;
}

double TraceSource::expected_rows() const {
  const std::uint64_t read = file_.bytes_read();
  const auto rows = static_cast<double>(rows_read_);
  return ended_ || read == 0 || bytes_ == 0 ? rows : rows * static_cast<double>(bytes_) / static_cast<double>(read);
}

namespace {

// Distinguishes the tokens and sessions of traces. Ids of a trace are small, so that ranges do not overlap.
constexpr Token kTokensApart = 0x2545F491;
constexpr std::uint64_t kSessionsApart = 0x9E3779B97F4A7C15U;

// By how much times are stretched, so that requests come at this rate.
Result<double> stretch_for(const TraceMix::Options& options) {
  double rows = 0;
  TimePoint longest{0};
  for (const std::string& path : options.paths) {
    CAIRN_TRY_ASSIGN(TraceSource source, TraceSource::open(path, options.bad_rows));
    sim::ReplayRequest request;
    std::optional<TimePoint> first;
    TimePoint last{0};
    while (source.next(request)) {
      first = first.value_or(request.arrival);
      last = std::max(last, request.arrival);
      ++rows;
    }
    longest = std::max(longest, last - first.value_or(last));
  }
  if (longest.count() == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "--rate needs requests that arrive at different times; remove it, or use --concurrency");
  }
  return rows / std::chrono::duration<double>(longest).count() / options.rate;
}

Duration stretched(Duration time, double by) {
  return by == 1 ? time : Duration(std::llround(static_cast<double>(time.count()) * by));
}

}  // namespace

TraceMix::TraceMix(std::vector<Part> parts, double stretch) : parts_(std::move(parts)), stretch_(stretch) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    advance(i);
    // A single trace keeps its times: the replay counts from the first arrival.
    parts_[i].begin = parts_[i].has_head && parts_.size() > 1 ? parts_[i].head.arrival : TimePoint(0);
  }
}

Result<TraceMix> TraceMix::open(const Options& options) {
  double stretch = 1;
  if (options.rate > 0) {
    CAIRN_TRY_ASSIGN(stretch, stretch_for(options));
  }
  std::vector<Part> parts;
  for (const std::string& path : options.paths) {
    CAIRN_TRY_ASSIGN(TraceSource source, TraceSource::open(path, options.bad_rows));
    parts.push_back({.source = std::move(source)});
  }
  return TraceMix(std::move(parts), stretch);
}

void TraceMix::advance(std::size_t part) { parts_[part].has_head = parts_[part].source.next(parts_[part].head); }

bool TraceMix::next(sim::ReplayRequest& request) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto arrival = [this](std::size_t part) { return parts_[part].head.arrival - parts_[part].begin; };
    if (parts_[i].has_head && (!first || arrival(i) < arrival(*first))) {
      first = i;
    }
  }
  if (!first) {
    return false;
  }
  Part& part = parts_[*first];
  std::swap(request, part.head);
  advance(*first);
  request.arrival = stretched(request.arrival - part.begin, stretch_);
  if (request.delay) {
    request.delay = stretched(*request.delay, stretch_);
  }
  if (*first > 0) {
    for (sim::TokenRun& run : request.prompt) {
      run.token += static_cast<Token>(*first) * kTokensApart;
    }
    request.session = request.session == 0 ? 0 : (request.session ^ (*first * kSessionsApart)) | 1;
  }
  return true;
}

Status TraceMix::status() const {
  for (const Part& part : parts_) {
    if (!part.source.status()) {
      return part.source.status();
    }
  }
  return {};
}

std::uint64_t TraceMix::bad_rows() const {
  std::uint64_t all = 0;
  for (const Part& part : parts_) {
    all += part.source.bad_rows();
  }
  return all;
}

std::vector<std::string> TraceMix::bad_row_names() const {
  std::vector<std::string> all;
  for (const Part& part : parts_) {
    all.insert(all.end(), part.source.bad_row_names().begin(), part.source.bad_row_names().end());
  }
  return all;
}

double TraceMix::expected_rows() const {
  double all = 0;
  for (const Part& part : parts_) {
    all += part.source.expected_rows();
  }
  return all;
}

}  // namespace cairn::cli
