// EventLog: numbers the events of all pools (tiers) of a manager 1, 2, 3 and so on, and keeps the latest of them.
//
// A batch of registered blocks becomes one Stored event for each chain in it: the batch is split where a block's parent is
// not the block before it. A batch of removed blocks is one event. An event that is larger than the log is split.
//
// EventSubscriber follows a log; take_snapshot() gives a follower that joins late, or has lost events, a place to start from.
//
// Thread safety: safe from any thread. Pools call it under their lock; invalidate(), suspend() and resume() are called
// without one. A reader holds the log's lock only while it copies a bounded part.
// Ownership: outlives the pools that it observes and the subscribers that follow it. It observes at most one pool of each
// tier.
// Errors: create() refuses a log of 0 blocks, and known_blocks without a block_size; read() refuses numbers that the log has not given out.
// Complexity: allocates only when it is created, and for those who wait for news. Appending drops the oldest events and never waits for a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/pool/pool_observer.h"

namespace cairn {

struct EventLogOptions {
  // How many stored or removed blocks, and as many events, the log keeps; 64 bytes each. Rounded up to a power of two.
  std::uint32_t blocks = 64 * 1024;
  // How many token ids of stored blocks the log keeps; 4 bytes each, rounded up likewise. 0: none.
  std::uint32_t token_ids = 0;
  // The token ids of this many blocks are remembered as long as a tier has the block, so that the log knows them when
  // another tier gets the block, and snapshots have them: 4 bytes a token and some 60 bytes a block. 0: none.
  std::uint32_t known_blocks = 0;
  std::uint32_t block_size = 0;  // tokens of a block; needed for known_blocks
  EventSource source = {};       // of all events
};

// Somebody who waits for news in a log, without asking again and again; EventLog::wake_after().
class EventWaker {
 public:
  virtual ~EventWaker() = default;
  // Called by the thread that adds an event, under the locks of the pool and of the log: be quick, and call neither of them.
  virtual void wake() = 0;
};

class EventLog final : public PoolObserver {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EventLog>> create(const EventLogOptions& options);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() override;

  // Called by the pools.
  void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) override;
  void on_removed(CacheLevel tier, std::span<const BlockKey> keys) override;
  void on_cleared(CacheLevel tier) override;
  void on_matched(CacheLevel, std::span<const BlockKey>) override {}  // a match changes nothing

  // The blocks of these keys are about to be stored in a tier by a copy: their token ids, block_size for each. Returns for how
  // many of the keys, from the first on, there is room; 0 unless keeps_token_ids(). Their token ids are remembered until
  // forget_token_ids() is called once for each of those keys, and beyond that while a tier has the block.
  [[nodiscard]] std::size_t expect_token_ids(std::span<const BlockKey> keys, std::span<const Token> token_ids);
  void forget_token_ids(std::span<const BlockKey> keys);
  [[nodiscard]] bool keeps_token_ids() const;
  // The token ids of the blocks, each empty if they are unknown.
  [[nodiscard]] std::vector<std::vector<Token>> token_ids_of(std::span<const ResidentBlock> blocks) const;

  [[nodiscard]] EventSource source() const;

  // The weights changed. Requires: the pool of the tier is empty.
  void invalidate(CacheLevel tier, std::uint64_t weights_generation);
  // The tier goes out of use because its device fails or stalls, and comes back with its blocks. No event if nothing changes.
  void suspend(CacheLevel tier);
  void resume(CacheLevel tier);
  [[nodiscard]] bool is_suspended(CacheLevel tier) const;

  // The number of the latest event; 0 if there is none.
  [[nodiscard]] std::uint64_t last_sequence() const;
  // The first number that can still be read; last_sequence() + 1 if there is none.
  [[nodiscard]] std::uint64_t oldest_sequence() const;

  // The events from number `from` on, up to `max_blocks` blocks and kMaxEventsPerRead events in all; at least one event if
  // there is one. Errors: kOutOfRange if `from` is 0 or beyond last_sequence() + 1.
  [[nodiscard]] Result<EventBatch> read(std::uint64_t from, std::size_t max_blocks) const;
  static constexpr std::size_t kMaxEventsPerRead = 1024;

  // Calls `waker` once, at the next event. False, without a call, if there are events after number `sequence` already. A waker
  // that is waiting for an event already stays as it is. It outlives its call, or forget() is called for it.
  [[nodiscard]] bool wake_after(std::uint64_t sequence, EventWaker& waker);
  // After this, `waker` is not called.
  void forget(const EventWaker& waker);

  // All memory of the log, without those who wait; never changes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  class Impl;
  explicit EventLog(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// A cursor over one log. poll() returns each event once, in order.
//
// If the log has dropped events that the subscriber needs, poll() returns Lagged until the subscriber resumes: take a
// snapshot, rebuild from it, and call resume_at(snapshot.sequence + 1). A subscriber that joins late starts in that state.
//
// Thread safety: one thread at a time.
// Ownership: the log outlives it. A log can have any number of subscribers at no cost.
// Errors: resume_at() and resuming() refuse a number that the log has not given out.
class EventSubscriber {
 public:
  static constexpr std::size_t kDefaultBatch = 1024;

  // Starts without knowledge: poll() returns Lagged until resume_at().
  [[nodiscard]] static EventSubscriber joining(const EventLog& log) { return EventSubscriber(log, 1, true); }
  // Continues with event `next`; 1 follows a log from its start.
  [[nodiscard]] static Result<EventSubscriber> resuming(const EventLog& log, std::uint64_t next);

  // The next events, up to `max_blocks` blocks in all or one larger event; empty if there is nothing new. Or Lagged.
  [[nodiscard]] EventBatch poll(std::size_t max_blocks = kDefaultBatch);
  // Continues with event `next`, forward or back. If the log has dropped it already, poll() returns Lagged.
  [[nodiscard]] Status resume_at(std::uint64_t next);

  // The number of the next event, or of the first lost one.
  [[nodiscard]] std::uint64_t next_sequence() const { return next_; }
  [[nodiscard]] bool needs_snapshot() const { return needs_snapshot_; }

 private:
  EventSubscriber(const EventLog& log, std::uint64_t next, bool needs_snapshot)
      : log_(&log), next_(next), needs_snapshot_(needs_snapshot) {}

  const EventLog* log_;
  std::uint64_t next_;
  bool needs_snapshot_;
};

struct TierSnapshot {
  CacheLevel tier = CacheLevel::kG1;
  std::vector<ResidentBlock> blocks = {};  // sorted by key, so parents come first; parent 0 at position 0
  bool suspended = false;                  // the blocks cannot be loaded until the tier is resumed
  std::uint32_t group = 0;                 // as in Event
  // Of each block, in the same order; empty if they are unknown. No elements unless the log keeps token ids.
  std::vector<std::vector<Token>> token_ids = {};
};

// All blocks that the pools of a log have cached, the suspended tiers, and the number of the event after which this was so.
struct Snapshot {
  std::uint64_t sequence = 0;       // continue with the event after this one
  std::vector<TierSnapshot> tiers;  // one for each pool, in the order given
  EventSource source = {};          // as in Event
};

// Walks the pools in parts while they go on working, and corrects what it saw by the events of that time. The result is
// exact: the state after event `sequence`, as if everything had stopped there. `pools` are all pools that `log` has observed
// since before their first block.
// Thread safety: safe from any thread. A pool is locked for a part of its blocks at a time; for all of them only if the log
// is so small that nothing else succeeds.
// Errors: kInvalidArgument for two pools of one tier; kExhausted if the log drops events faster than the pools can be
// walked: make the log larger.
// Complexity: memory for the resident blocks, and sorting them, without a lock.
[[nodiscard]] Result<Snapshot> take_snapshot(const EventLog& log, std::span<const ResidentSource* const> pools);

}  // namespace cairn
