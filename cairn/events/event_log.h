// EventLog: the one order of everything that became or ceased to be cached, for all pools (tiers) of a manager, and of
// the times when a tier was out of use.
//
// Does:     numbers what its pools tell it 1, 2, 3 and so on, and keeps the last of it. A batch of registered blocks
//           becomes one Stored event for each chain in it: it is split wherever a block's parent is not the block
//           before it. A batch of removed blocks is one event. What is larger than the log is split so that each event
//           fits.
// Owner:    whoever created it; outlives the pools that it observes and the subscribers that follow it. Observes at
//           most one pool of each tier.
// Threads:  every call is safe from any thread. What pools tell comes under their lock; invalidate(), suspend() and
//           resume() come under none. Reading holds the log's lock only while it copies a bounded piece.
// Costs:    memory is fixed at creation. Appending allocates nothing and waits for no reader: the oldest events go when
//           room is needed.
// Fails:    create() on options that make no sense; read() of numbers that the log has not given out.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/events/event_ring.h"
#include "cairn/pool/pool_observer.h"

namespace cairn {

struct EventLogOptions {
  // Blocks, stored or removed, whose events are kept; and as many events. 64 bytes each. Rounded up to a power of two.
  std::uint32_t blocks = 64 * 1024;
  // Token ids kept for the latest stored blocks, 4 bytes each; rounded up likewise; 0 records none.
  std::uint32_t token_ids = 0;
};

class EventLog final : public PoolObserver {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EventLog>> create(const EventLogOptions& options);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() override = default;

  // What pools tell; for pools only.
  void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) override;
  void on_removed(CacheLevel tier, std::span<const BlockKey> keys) override;
  void on_cleared(CacheLevel tier) override;
  void on_matched(CacheLevel, std::span<const BlockKey>) override {}  // what is cached did not change

  // The weights changed; while the pool of the tier holds nothing.
  void invalidate(CacheLevel tier, std::uint64_t weights_generation);
  // The tier of one of the pools goes out of use, because its device errs or stalls, and comes back with what it holds.
  // No event where it is so already.
  void suspend(CacheLevel tier);
  void resume(CacheLevel tier);
  [[nodiscard]] bool is_suspended(CacheLevel tier) const;

  // The number of the latest event; 0 before the first.
  [[nodiscard]] std::uint64_t last_sequence() const;
  // The first number that can still be read; last_sequence() + 1 where nothing can.
  [[nodiscard]] std::uint64_t oldest_sequence() const;

  // The events from number `from` on: whole ones of `max_blocks` blocks in all, but at least one where there is one,
  // and kMaxEventsPerRead at most. Fails where `from` is 0 or beyond last_sequence() + 1: it is not a number of this
  // log.
  [[nodiscard]] Result<EventBatch> read(std::uint64_t from, std::size_t max_blocks) const;
  static constexpr std::size_t kMaxEventsPerRead = 1024;

  // Memory for events, everything included; never changes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared, kInvalidated, kSuspended, kResumed };
  // An event without its blocks and token ids, which lie in rings of their own.
  struct Record {
    std::uint64_t first_block = 0;  // number in blocks_
    std::uint64_t first_token = 0;  // number in tokens_; kInvalidated: the generation of the weights
    SequenceHash parent{0};         // of the first stored block
    std::uint32_t blocks = 0;
    std::uint32_t tokens = 0;
    CacheLevel tier = CacheLevel::kG1;
    Kind kind = Kind::kCleared;
  };
  using Records = internal::EventRing<Record>;
  using Blocks = internal::EventRing<StoredBlock>;
  using Tokens = internal::EventRing<Token>;

  EventLog(Records records, Blocks blocks, Tokens tokens);
  // One chain, in as many events as it takes; `tokens_per_block` is 0 where there are none to record.
  void append_chain(CacheLevel tier, std::span<const ResidentBlock> chain, std::span<const Token> tokens,
                    std::size_t tokens_per_block) CAIRN_REQUIRES(mutex_);
  // Numbers an event of `blocks` blocks, which the caller writes from number first_block on; drops what is in the way.
  Record& append(Kind kind, CacheLevel tier, std::size_t blocks) CAIRN_REQUIRES(mutex_);

  // What read() copies out, a bounded piece under each lock. Each gives false where event `from` is gone.
  [[nodiscard]] bool copy_records(std::uint64_t from, std::span<Record> out) const;
  [[nodiscard]] bool copy_blocks(std::uint64_t from, std::uint64_t first_block, std::span<StoredBlock> out) const;
  // The event's data, given its blocks.
  [[nodiscard]] EventData data_of(const Record& record, std::span<const StoredBlock> blocks) const;
  // The token ids of a record; none if not all of them are there any more.
  [[nodiscard]] std::vector<Token> copy_tokens(const Record& record) const;
  [[nodiscard]] Lagged lagged(std::uint64_t from) const;

  mutable Mutex mutex_{LockRank::kEventLog};
  Records records_ CAIRN_GUARDED_BY(mutex_);
  Blocks blocks_ CAIRN_GUARDED_BY(mutex_);
  Tokens tokens_ CAIRN_GUARDED_BY(mutex_);
  std::bitset<kCacheLevels> suspended_ CAIRN_GUARDED_BY(mutex_);  // after event next_ - 1, at index_of(tier)
  std::uint64_t oldest_ CAIRN_GUARDED_BY(mutex_) = 1;             // events [oldest_, next_) are there
  std::uint64_t next_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint64_t oldest_block_ CAIRN_GUARDED_BY(mutex_) = 0;  // their blocks are [oldest_block_, next_block_)
  std::uint64_t next_block_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_token_ CAIRN_GUARDED_BY(mutex_) = 0;  // the last capacity before it are there
};

}  // namespace cairn
