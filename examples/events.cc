// A router that follows the events of one worker and looks up how much of a request is cached there. docs/events.md
// shows the part between the marks.
#include <cstdio>
#include <numeric>
#include <variant>
#include <vector>

#include "cairn/events/event_log.h"
#include "cairn/events/residency_view.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tokens/token_sequence.h"

using namespace cairn;

namespace {

// docs: begin
// Brings the view up to date. A follower that is new, or too slow for the log, starts from a snapshot.
Status follow(const EventLog& log, std::span<const ResidentSource* const> pools, EventSubscriber& subscriber,
              ResidencyView& view) {
  const EventBatch batch = subscriber.poll();
  if (std::holds_alternative<Lagged>(batch)) {
    CAIRN_TRY_ASSIGN(const Snapshot snapshot, take_snapshot(log, pools));
    CAIRN_TRY(view.apply(snapshot));
    return subscriber.resume_at(snapshot.sequence + 1);
  }
  for (const Event& event : std::get<std::vector<Event>>(batch)) {
    CAIRN_TRY(view.apply(event));
  }
  return {};
}
// docs: end

}  // namespace

int main() {
  const auto log = EventLog::create({}).value();
  const auto pool = BlockPool::create({.capacity = 64, .block_size = 16, .observers = {log.get()}}).value();
  std::vector<Token> prompt(80);
  std::iota(prompt.begin(), prompt.end(), 0U);
  const auto request = TokenBlockSequence::create(prompt, pool->block_size()).value();
  const auto compute = [&](std::size_t first, std::size_t end) {
    return std::move(pool->allocate(static_cast<std::uint32_t>(end - first)).value())
        .complete(request, {first, end})
        .value()
        .register_blocks()
        .value();
  };

  EventSubscriber subscriber = EventSubscriber::joining(*log);
  ResidencyView view;
  const ResidentSource* const pools[] = {pool.get()};
  const ImmutableBlocks before = compute(0, 2);
  if (!follow(*log, pools, subscriber, view)) {  // a snapshot
    return 1;
  }
  const ImmutableBlocks after = compute(2, 4);
  if (!follow(*log, pools, subscriber, view)) {  // events
    return 1;
  }
  const ResidencyView::PrefixMatch match = view.match_prefix(request.keys());
  std::printf("%zu of %zu blocks are cached, %zu of them in GPU memory\n", match.blocks, request.block_count(),
              match.by_tier[index_of(CacheLevel::kG1)]);
  return match.blocks == 4 ? 0 : 1;
}
