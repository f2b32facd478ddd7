// EventLog: numbers the events of all pools (tiers) of a manager 1, 2, 3 and so on, and keeps the latest of them.
//
// A batch of registered blocks becomes one Stored event for each chain in it: the batch is split where a block's parent is
// not the block before it. A batch of removed blocks is one event. An event that is larger than the log is split.
//
// Thread safety: safe from any thread. Pools call it under their lock; invalidate(), suspend() and resume() are called
// without one. A reader holds the log's lock only while it copies a bounded part.
// Ownership: outlives the pools that it observes and the subscribers that follow it. It observes at most one pool of each
// tier.
// Errors: create() refuses a log of 0 blocks; read() refuses numbers that the log has not given out.
// Complexity: allocates only when it is created. Appending drops the oldest events and never waits for a reader.
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
  // How many stored or removed blocks, and as many events, the log keeps; 64 bytes each. Rounded up to a power of two.
  std::uint32_t blocks = 64 * 1024;
  // How many token ids of stored blocks the log keeps; 4 bytes each, rounded up likewise. 0: none.
  std::uint32_t token_ids = 0;
};

class EventLog final : public PoolObserver {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EventLog>> create(const EventLogOptions& options);
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  ~EventLog() override = default;

  // Called by the pools.
  void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) override;
  void on_removed(CacheLevel tier, std::span<const BlockKey> keys) override;
  void on_cleared(CacheLevel tier) override;
  void on_matched(CacheLevel, std::span<const BlockKey>) override {}  // a match changes nothing

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

  // All memory of the log; never changes.
  [[nodiscard]] std::size_t bytes() const;

 private:
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared, kInvalidated, kSuspended, kResumed };
  // An event without its blocks and token ids, which are in other rings.
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
  // Appends one chain, in as many events as it needs. `tokens_per_block` is 0 if token ids are not recorded.
  void append_chain(CacheLevel tier, std::span<const ResidentBlock> chain, std::span<const Token> tokens,
                    std::size_t tokens_per_block) CAIRN_REQUIRES(mutex_);
  // Appends an event of `blocks` blocks, which the caller writes from number first_block on. Drops old events if needed.
  Record& append(Kind kind, CacheLevel tier, std::size_t blocks) CAIRN_REQUIRES(mutex_);

  // Parts of read(), each with a bounded hold of the lock. They return false if event `from` was dropped.
  [[nodiscard]] bool copy_records(std::uint64_t from, std::span<Record> out) const;
  [[nodiscard]] bool copy_blocks(std::uint64_t from, std::uint64_t first_block, std::span<StoredBlock> out) const;
  // The data of an event with these blocks.
  [[nodiscard]] EventData data_of(const Record& record, std::span<const StoredBlock> blocks) const;
  // The token ids of a record; empty if some were dropped.
  [[nodiscard]] std::vector<Token> copy_tokens(const Record& record) const;
  [[nodiscard]] Lagged lagged(std::uint64_t from) const;

  mutable Mutex mutex_{LockRank::kEventLog};
  Records records_ CAIRN_GUARDED_BY(mutex_);
  Blocks blocks_ CAIRN_GUARDED_BY(mutex_);
  Tokens tokens_ CAIRN_GUARDED_BY(mutex_);
  std::bitset<kCacheLevels> suspended_ CAIRN_GUARDED_BY(mutex_);  // after event next_ - 1, at index_of(tier)
  std::uint64_t oldest_ CAIRN_GUARDED_BY(mutex_) = 1;             // the log has events [oldest_, next_)
  std::uint64_t next_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint64_t oldest_block_ CAIRN_GUARDED_BY(mutex_) = 0;  // their blocks are [oldest_block_, next_block_)
  std::uint64_t next_block_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_token_ CAIRN_GUARDED_BY(mutex_) = 0;  // the log has the last capacity before it
};

}  // namespace cairn
