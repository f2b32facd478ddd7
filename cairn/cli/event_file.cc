#include "cairn/cli/event_file.h"

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
    return fail(ErrorCode::kExhausted, str_cat("--events: ", path_, " could not be written completely"));
  }
  return {};
}

JsonWriter EventFile::begin(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier) {
  JsonWriter json(buffer_);
  json.begin_object();
  json.field("worker", worker);
  json.field("time_ms", static_cast<double>(at.count()) / 1e6);
  json.field("event_id", event_id);
  json.field("tier", to_string(tier));
  json.begin_object("data");
  return json;
}

void EventFile::end(JsonWriter& json) {
  json.end_object();
  json.end_object();
  buffer_ += '\n';
  if (buffer_.size() >= kBufferBytes) {
    file_ << buffer_;
    buffer_.clear();
  }
}

void EventFile::on_stored(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                          const sim::KvStored& stored) {
  JsonWriter json = begin(worker, at, event_id, tier);
  json.begin_object("stored");
  json.key("parent_hash");
  if (stored.parent) {
    json.value(value_of(*stored.parent));
  } else {
    json.value(nullptr);
  }
  json.begin_array("blocks");
  for (const sim::KvStoredBlock& block : stored.blocks) {
    json.begin_object();
    json.field("block_hash", value_of(block.hash));
    json.field("tokens_hash", value_of(block.tokens_hash));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  end(json);
}

void EventFile::on_removed(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                           const sim::KvRemoved& removed) {
  JsonWriter json = begin(worker, at, event_id, tier);
  json.begin_object("removed");
  json.begin_array("block_hashes");
  for (const SequenceHash hash : removed.hashes) {
    json.value(value_of(hash));
  }
  json.end_array();
  json.end_object();
  end(json);
}

}  // namespace cairn::cli
