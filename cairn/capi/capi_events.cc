#include <utility>

#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"
#include "cairn/events/event_json.h"
#include "cairn/events/snapshot.h"

using namespace cairn;        // NOLINT(google-build-using-namespace): the functions stand outside of it
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

namespace {

// What leads a follower from any state to that of the snapshot, as events of its number.
void append_snapshot(const Snapshot& snapshot, std::string& lines) {
  for (const TierSnapshot& tier : snapshot.tiers) {
    const auto append = [&](EventData data) {
      append_json_line({.sequence = snapshot.sequence, .tier = tier.tier, .data = std::move(data)}, lines);
    };
    append(Cleared());
    for (const ResidentBlock& block : tier.blocks) {
      Stored stored;
      if (block.key.position() > 0) {
        stored.parent = block.parent;
      }
      stored.blocks.push_back({.key = block.key, .tokens_hash = block.tokens_hash});
      append(std::move(stored));
    }
    tier.suspended ? append(Suspended()) : append(Resumed());
  }
}

// Reads what comes next into `lines`, whole or not at all: an event that is lost for want of memory would be a gap.
Status read_more(cairn_events& events, std::size_t max_blocks) {
  EventSubscriber subscriber = events.subscriber;
  std::string lines;
  EventBatch batch = subscriber.poll(max_blocks);
  if (std::holds_alternative<Lagged>(batch)) {
    std::vector<const ResidentSource*> pools;
    for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
      if (const BlockPool* const pool = events.manager->pool(level)) {
        pools.push_back(pool);
      }
    }
    const Result<Snapshot> snapshot = take_snapshot(*events.manager->events(), pools);
    if (!snapshot) {
      return Unexpected(Error(snapshot.error()));
    }
    append_snapshot(*snapshot, lines);
    if (Status resumed = subscriber.resume_at(snapshot->sequence + 1); !resumed) {
      return resumed;
    }
  } else {
    for (const Event& event : std::get<std::vector<Event>>(batch)) {
      append_json_line(event, lines);
    }
  }
  events.subscriber = subscriber;
  events.lines = std::move(lines);
  return {};
}

}  // namespace

int32_t cairn_events_create(const cairn_manager* manager, cairn_events** events, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    if (manager->manager.events() == nullptr) {
      return report(error, CAIRN_FAILED_PRECONDITION, "the event log is off; set event_log above 0");
    }
    *events = new cairn_events{
        &manager->manager, manager->lifetime, EventSubscriber::joining(*manager->manager.events()), {}};
    return CAIRN_OK;
  });
}

void cairn_events_destroy(cairn_events* events) { delete events; }

int32_t cairn_events_next(cairn_events* events, size_t max_blocks, char* buffer, size_t capacity, size_t* needed,
                          cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Lifetime::Use use(*events->lifetime);
    if (!use.is_good()) {
      return report(
          error, CAIRN_UNAVAILABLE,
          "the manager of these events was destroyed; destroy the events, and create others of a new manager");
    }
    if (events->lines.empty()) {
      if (const Status status = read_more(*events, max_blocks); !status) {
        return report(error, status.error());
      }
    }
    if (write_text(events->lines, buffer, capacity, needed) == events->lines.size()) {
      events->lines.clear();
    }
    return CAIRN_OK;
  });
}
