#include <utility>

#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"
#include "cairn/events/event.h"
#include "cairn/events/event_log.h"

using namespace cairn;        // NOLINT(google-build-using-namespace): the C functions are outside of the namespace
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

namespace {

// Appends the events that bring a subscriber from any state to that of the snapshot; all have the snapshot's sequence number.
void append_snapshot(const Snapshot& snapshot, std::string& lines) {
  for (const TierSnapshot& tier : snapshot.tiers) {
    const auto append = [&](EventData data) {
      append_json_line({.sequence = snapshot.sequence,
                        .tier = tier.tier,
                        .data = std::move(data),
                        .source = snapshot.source,
                        .group = tier.group},
                       lines);
    };
    append(Cleared());
    for (std::size_t i = 0; i < tier.blocks.size(); ++i) {
      const ResidentBlock& block = tier.blocks[i];
      Stored stored;
      if (!tier.token_ids.empty()) {
        stored.token_ids = tier.token_ids[i];
      }
      if (block.key.position() > 0) {
        stored.parent = block.parent;
      }
      stored.blocks.push_back({.key = block.key, .tokens_hash = block.tokens_hash});
      append(std::move(stored));
    }
    tier.suspended ? append(Suspended()) : append(Resumed());
  }
}

// Reads the next events into `events.lines`. If memory runs out, `events` is unchanged: no event is lost.
Status read_more(cairn_events& events, std::size_t max_blocks) {
  EventSubscriber subscriber = events.subscriber;
  std::string lines;
  EventBatch batch = subscriber.poll(max_blocks);
  if (std::holds_alternative<Lagged>(batch)) {
    std::vector<const ResidentSource*> pools;
    for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
      if (const BlockPool* const pool = events.manager->pool(level)) {
        pools.push_back(pool);
      }
    }
    CAIRN_TRY_ASSIGN(const Snapshot snapshot, take_snapshot(*events.manager->events(), pools));
    append_snapshot(snapshot, lines);
    CAIRN_TRY(subscriber.resume_at(snapshot.sequence + 1));
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
  return guarded(error, [&]() -> Status {
    if (manager->manager.events() == nullptr) {
      return fail(ErrorCode::kFailedPrecondition, "the manager has no event log; set event_log above 0");
    }
    *events = new cairn_events{
        &manager->manager, manager->lifetime, EventSubscriber::joining(*manager->manager.events()), {}};
    return {};
  });
}

void cairn_events_destroy(cairn_events* events) { delete events; }

int32_t cairn_events_next(cairn_events* events, size_t max_blocks, char* buffer, size_t capacity, size_t* needed,
                          cairn_error* error) {
  return guarded(error, [&]() -> Status {
    const Lifetime::Use use(*events->lifetime);
    if (!use.is_good()) {
      return fail(ErrorCode::kUnavailable,
                  "the manager of these events was destroyed; destroy them and subscribe to another manager");
    }
    if (events->lines.empty()) {
      CAIRN_TRY(read_more(*events, max_blocks));
    }
    if (write_text(events->lines, buffer, capacity, needed) == events->lines.size()) {
      events->lines.clear();
    }
    return {};
  });
}
