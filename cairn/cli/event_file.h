// EventFile: writes the events of a replay as lines of JSON, in the shape of events/event.h, with the worker and the
// virtual time in front:
//
//     {"worker":0,"time_ms":12.5,"event_id":7,"tier":"G1","data":{"stored":{"parent_hash":null,"blocks":[
//         {"block_hash":11,"tokens_hash":12}]}}}
//     {"worker":0,"time_ms":13,"event_id":8,"tier":"G1","data":{"removed":{"block_hashes":[11]}}}
//
// Thread safety: one thread.
// Errors: open() if the file cannot be created, close() if not all events could be written.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "cairn/base/json_writer.h"
#include "cairn/base/result.h"
#include "cairn/sim/replay.h"

namespace cairn::cli {

class EventFile final : public sim::ReplayEventSink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EventFile>> open(const std::string& path);
  [[nodiscard]] Status close();

  void on_stored(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                 const sim::KvStored& stored) override;
  void on_removed(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                  const sim::KvRemoved& removed) override;

 private:
  EventFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}
  // Starts a line, up to the data of the event; end() ends it.
  JsonWriter begin(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier);
  void end(JsonWriter& json);

  std::string path_;
  std::ofstream file_;
  std::string buffer_;
};

}  // namespace cairn::cli
