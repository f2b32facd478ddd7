#include "cairn/lab/trace.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/tokens/hashes.h"

namespace cairn::lab {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;

// Lines of a file, compressed or not.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : file_(gzopen(path.c_str(), "rb")) {}
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader() {
    if (file_ != nullptr) {
      gzclose_r(file_);
    }
  }

  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  [[nodiscard]] std::uint64_t bytes_read() const { return static_cast<std::uint64_t>(std::max(0L, gzoffset(file_))); }

  // The next line without its end; none at the end of the file or after an error.
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
      if (number != Z_OK) {  // Z_BUF_ERROR, where the file stops within a stream, comes with a count of 0
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

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// Ids are often small numbers in sequence; a key's hash is not.
BlockHash hash_of_id(std::uint64_t id) {
  id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9U;
  id = (id ^ (id >> 27)) * 0x94D049BB133111EBU;
  return BlockHash{(id ^ (id >> 31)) + 0x9E3779B97F4A7C15U};
}

}  // namespace

Result<Trace> Trace::load(const std::string& path, std::uint32_t block_size, const Progress& progress) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "a block of 0 tokens; give the tokens that an id of the trace stands for");
  }
  LineReader lines(path);
  if (!lines.is_open()) {
    return fail(ErrorCode::kNotFound, str_cat("cannot open ", path, ": ", std::strerror(errno)));
  }
  Trace trace(path, block_size);
  TraceRow row;
  std::uint64_t number = 0;
  for (std::optional<std::string_view> line = lines.next(); line; line = lines.next()) {
    ++number;
    if (is_blank(*line)) {
      continue;
    }
    Status status = parse_trace_row(*line, row);
    if (status) {
      status = trace.add(row);
    }
    if (!status) {
      trace.note_bad(number, status.error());
    }
    if (progress && number % 4096 == 0) {
      progress(lines.bytes_read());
    }
  }
  if (!lines.error().empty()) {
    return fail(ErrorCode::kCorrupt, str_cat("cannot read ", path, " beyond line ", number, ": ", lines.error()));
  }
  if (trace.requests_.empty()) {
    return fail(ErrorCode::kCorrupt, str_cat(path, " has no request in Mooncake's JSONL",
                                             trace.bad_rows_ == 0 ? "" : "; ", trace.first_bad_row_));
  }
  return trace;
}

Status Trace::add(const TraceRow& row) {
  if (row.hash_ids.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a request without blocks");
  }
  if (row.hash_ids.size() > BlockKey::kMaxPosition || keys_.size() + row.hash_ids.size() >= kNoBlock) {
    return fail(ErrorCode::kOutOfRange, str_cat(row.hash_ids.size(), " blocks are more than a trace can have"));
  }
  const auto blocks = static_cast<std::uint32_t>(row.hash_ids.size());
  const std::uint64_t most = std::uint64_t{blocks} * block_size_;
  const std::uint64_t least = most - block_size_ + 1;
  requests_.push_back({.first = references_.size(),
                       .blocks = blocks,
                       .tokens = row.input_tokens == 0 ? most : std::clamp(row.input_tokens, least, most)});
  SequenceHash hash{};
  std::uint32_t above = kNoBlock;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const BlockHash own = hash_of_id(row.hash_ids[i]);
    const SequenceHash parent = hash;
    hash = i == 0 ? sequence_hash_of_root(own) : chain_hash(parent, own);
    const BlockKey key = BlockKey::make_checked(i, hash, parent);
    const auto [found, is_new] = numbers_.try_emplace(key, unique_blocks());
    if (is_new) {
      keys_.push_back(key);
      parents_.push_back(above);
    }
    above = found->second;
    references_.push_back(above);
  }
  return {};
}

std::uint32_t Trace::find(const BlockKey& key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? kNoBlock : found->second;
}

void Trace::note_bad(std::uint64_t line, const Error& error) {
  if (bad_rows_++ == 0) {
    first_bad_row_ = str_cat("line ", line, ": ", error.message);
  }
}

}  // namespace cairn::lab
