#include "cairn/cli/trace_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
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

}  // namespace cairn::cli
