// EventWriter: numbers the events of a simulated KvManager and of the tiers below it, and passes them to the sink.
// Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/ids.h"
#include "cairn/sim/kv_event_sink.h"

namespace cairn::sim::internal {

class EventWriter {
 public:
  explicit EventWriter(KvEventSink* sink) : sink_(sink) {}

  // If false, callers need not collect the contents of events.
  [[nodiscard]] bool has_sink() const { return sink_ != nullptr; }
  // An event without blocks is not sent.
  void stored(const KvStored& event, CacheLevel tier = CacheLevel::kG1) {
    if (has_sink() && !event.blocks.empty()) {
      sink_->on_stored(next_event_id_++, tier, event);
    }
  }
  void removed(std::span<const SequenceHash> hashes, CacheLevel tier = CacheLevel::kG1) {
    if (has_sink() && !hashes.empty()) {
      sink_->on_removed(next_event_id_++, tier, {hashes});
    }
  }

 private:
  KvEventSink* sink_;
  std::uint64_t next_event_id_ = 0;
};

}  // namespace cairn::sim::internal
