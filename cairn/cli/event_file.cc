#include "cairn/cli/event_file.h"

#include <charconv>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::cli {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::open(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  if (!file) {
    return fail(ErrorCode::kInvalidArgument, str_cat("--events: cannot write ", path));
  }
  return std::unique_ptr<EventFile>(new EventFile(path, std::move(file)));
}

Status EventFile::close() {
  file_ << std::exchange(buffer_, {});
  file_.close();
  if (!file_) {
    return fail(ErrorCode::kExhausted, str_cat("--events: ", path_, " could not be written to its end"));
  }
  return {};
}

void EventFile::number(std::uint64_t value) {
  char digits[20];
  const auto [last, error] = std::to_chars(digits, digits + sizeof(digits), value);
  buffer_.append(digits, last);
}

void EventFile::begin(std::uint32_t worker, TimePoint at, std::uint64_t event_id) {
  char digits[32];
  const auto [last, error] = std::to_chars(digits, digits + sizeof(digits), static_cast<double>(at.count()) / 1e6);
  buffer_ += "{\"worker\":";
  number(worker);
  buffer_ += ",\"time_ms\":";
  buffer_.append(digits, last);
  buffer_ += ",\"event_id\":";
  number(event_id);
  buffer_ += ",\"tier\":\"G1\",\"data\":{\"";
}

void EventFile::end() {
  if (buffer_.size() >= kBufferBytes) {
    file_ << buffer_;
    buffer_.clear();
  }
}

void EventFile::on_stored(std::uint32_t worker, TimePoint at, std::uint64_t event_id, const sim::KvStored& stored) {
  begin(worker, at, event_id);
  buffer_ += "stored\":{\"parent_hash\":";
  if (stored.parent) {
    number(value_of(*stored.parent));
  } else {
    buffer_ += "null";
  }
  buffer_ += ",\"blocks\":[";
  for (const sim::KvStoredBlock& block : stored.blocks) {
    buffer_ += &block == stored.blocks.data() ? "{\"block_hash\":" : ",{\"block_hash\":";
    number(value_of(block.hash));
    buffer_ += ",\"tokens_hash\":";
    number(value_of(block.tokens_hash));
    buffer_ += '}';
  }
  buffer_ += "]}}}\n";
  end();
}

void EventFile::on_removed(std::uint32_t worker, TimePoint at, std::uint64_t event_id, const sim::KvRemoved& removed) {
  begin(worker, at, event_id);
  buffer_ += "removed\":{\"block_hashes\":[";
  for (const SequenceHash& hash : removed.hashes) {
    if (&hash != removed.hashes.data()) {
      buffer_ += ',';
    }
    number(value_of(hash));
  }
  buffer_ += "]}}}\n";
  end();
}

}  // namespace cairn::cli
