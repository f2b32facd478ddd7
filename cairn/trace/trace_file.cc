#include "cairn/trace/trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::trace {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

// Lines of a file, compressed or not.
class TraceFile::Lines {
 public:
  explicit Lines(const std::string& path) : file_(gzopen(path.c_str(), "rb")) {}
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines() {
    if (file_ != nullptr) {
      gzclose_r(file_);
    }
  }

  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  [[nodiscard]] std::uint64_t bytes_read() const { return static_cast<std::uint64_t>(std::max(0L, gzoffset(file_))); }

  // The next line without its line break; std::nullopt at the end of the file or after an error.
  [[nodiscard]] std::optional<std::string_view> next() {
    while (true) {
      const std::size_t end = buffer_.find('\n', at_);
      if (end != std::string::npos) {
        return std::string_view(buffer_).substr(std::exchange(at_, end + 1), end - at_);
      }
      buffer_.erase(0, std::exchange(at_, 0));
      const std::size_t kept = buffer_.size();
      buffer_.resize(kept + kChunk);
      const int count = gzread(file_, buffer_.data() + kept, kChunk);
      buffer_.resize(kept + static_cast<std::size_t>(std::max(count, 0)));
      if (count > 0) {
        continue;
      }
      int number = Z_OK;
      const char* const text = gzerror(file_, &number);
      if (number != Z_OK) {  // a file that ends within a stream gives Z_BUF_ERROR and a count of 0
        error_ = number == Z_ERRNO ? std::strerror(errno) : text;
        return std::nullopt;
      }
      at_ = buffer_.size();
      return buffer_.empty() ? std::nullopt : std::optional<std::string_view>(buffer_);
    }
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  gzFile file_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::string error_;
};

TraceFile::TraceFile(std::string path, std::unique_ptr<Lines> lines)
    : path_(std::move(path)), lines_(std::move(lines)) {}
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

Result<TraceFile> TraceFile::open(const std::string& path) {
  auto lines = std::make_unique<Lines>(path);
  if (!lines->is_open()) {
    return fail(ErrorCode::kNotFound, str_cat("cannot open ", path, ": ", std::strerror(errno)));
  }
  return TraceFile(path, std::move(lines));
}

TraceFile::Next TraceFile::next(TraceRow& row) {
  std::optional<std::string_view> text;
  do {
    text = lines_->next();
    if (!text) {
      if (lines_->error().empty()) {
        return Next::kEnd;
      }
      error_ = str_cat("cannot read ", path_, " beyond line ", line_, ": ", lines_->error());
      return Next::kBroken;
    }
    ++line_;
  } while (is_blank(*text));
  const Status status = parse_trace_row(*text, row);
  if (!status) {
    error_ = str_cat("line ", line_, ": ", status.error().message);
    return Next::kBadRow;
  }
  return Next::kRow;
}

std::uint64_t TraceFile::bytes_read() const { return lines_->bytes_read(); }

}  // namespace cairn::trace
