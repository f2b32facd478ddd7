#include "cairn/events/event_log.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <utility>
#include <variant>

#include "cairn/base/check.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/events/event_ring.h"
#include "cairn/events/known_tokens.h"

namespace cairn {

namespace {

// How much a reader copies under one hold of the lock: a few microseconds.
constexpr std::size_t kBlocksPerLock = 1024;
constexpr std::size_t kTokensPerLock = 8 * 1024;

// How many blocks, from the first on, form one chain: each is the parent of the next.
std::size_t chain_length(std::span<const ResidentBlock> blocks) {
  std::uint32_t position = blocks.front().key.position();
  SequenceHash hash = blocks.front().key.sequence_hash();
  std::size_t length = 1;
  for (; length < blocks.size(); ++length) {
    const ResidentBlock& block = blocks[length];
    if (block.key.position() != ++position || block.parent != hash) {
      break;
    }
    hash = block.key.sequence_hash();
  }
  return length;
}

}  // namespace

class EventLog::Impl {
 public:
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

  Impl(Records records, Blocks blocks, Tokens tokens, const EventLogOptions& options)
      : source_(options.source),
        keeps_token_ids_(options.known_blocks != 0),
        known_(options.known_blocks, options.block_size),
        records_(std::move(records)),
        blocks_(std::move(blocks)),
        tokens_(std::move(tokens)) {}

  // As those of EventLog.
  void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens);
  void on_removed(CacheLevel tier, std::span<const BlockKey> keys);
  void append_mark(Kind kind, CacheLevel tier, std::uint64_t weights_generation = 0);
  [[nodiscard]] std::size_t expect_token_ids(std::span<const BlockKey> keys, std::span<const Token> token_ids);
  void forget_token_ids(std::span<const BlockKey> keys);
  [[nodiscard]] bool keeps_token_ids() const { return keeps_token_ids_; }
  [[nodiscard]] std::vector<std::vector<Token>> token_ids_of(std::span<const ResidentBlock> blocks) const;
  [[nodiscard]] EventSource source() const { return source_; }
  void set_suspended(CacheLevel tier, bool suspended);
  [[nodiscard]] bool is_suspended(CacheLevel tier) const;
  [[nodiscard]] std::uint64_t last_sequence() const;
  [[nodiscard]] std::uint64_t oldest_sequence() const;
  [[nodiscard]] Result<EventBatch> read(std::uint64_t from, std::size_t max_blocks) const;
  [[nodiscard]] bool wake_after(std::uint64_t sequence, EventWaker& waker);
  void forget(const EventWaker& waker);
  [[nodiscard]] std::size_t bytes() const;

 private:
  // How many blocks, from the first on, have token ids that are known, or unknown, like those of the first one.
  [[nodiscard]] std::size_t known_alike(std::span<const ResidentBlock> blocks) const CAIRN_REQUIRES(mutex_);
  // Appends one chain, in as many events as it needs. `tokens_per_block` is 0 if token ids are not recorded; `tokens` is
  // empty if they are among the known ones.
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

  const EventSource source_;
  const bool keeps_token_ids_;
  mutable Mutex mutex_{LockRank::kEventLog};
  internal::KnownTokens known_ CAIRN_GUARDED_BY(mutex_);
  Records records_ CAIRN_GUARDED_BY(mutex_);
  Blocks blocks_ CAIRN_GUARDED_BY(mutex_);
  Tokens tokens_ CAIRN_GUARDED_BY(mutex_);
  std::bitset<kCacheLevels> suspended_ CAIRN_GUARDED_BY(mutex_);  // after event next_ - 1, at index_of(tier)
  std::uint64_t oldest_ CAIRN_GUARDED_BY(mutex_) = 1;             // the log has events [oldest_, next_)
  std::uint64_t next_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint64_t oldest_block_ CAIRN_GUARDED_BY(mutex_) = 0;  // their blocks are [oldest_block_, next_block_)
  std::uint64_t next_block_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_token_ CAIRN_GUARDED_BY(mutex_) = 0;     // the log has the last capacity before it
  std::vector<EventWaker*> wakers_ CAIRN_GUARDED_BY(mutex_);  // each once
};

Result<std::unique_ptr<EventLog>> EventLog::create(const EventLogOptions& options) {
  if (options.blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "an event log of 0 blocks cannot keep any event; give it at least 1");
  }
  if (options.known_blocks != 0 && options.block_size == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("an event log that remembers the token ids of ", options.known_blocks,
                        " blocks needs a block_size; give the tokens of a block"));
  }
  CAIRN_TRY_ASSIGN(Impl::Records records, Impl::Records::create(options.blocks));
  CAIRN_TRY_ASSIGN(Impl::Blocks blocks, Impl::Blocks::create(options.blocks));
  CAIRN_TRY_ASSIGN(Impl::Tokens tokens, Impl::Tokens::create(options.token_ids));
  return std::unique_ptr<EventLog>(
      new EventLog(std::make_unique<Impl>(std::move(records), std::move(blocks), std::move(tokens), options)));
}

EventLog::EventLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventLog::~EventLog() = default;

void EventLog::on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) {
  impl_->on_registered(tier, blocks, tokens);
}
void EventLog::on_removed(CacheLevel tier, std::span<const BlockKey> keys) { impl_->on_removed(tier, keys); }
void EventLog::on_cleared(CacheLevel tier) { impl_->append_mark(Impl::Kind::kCleared, tier); }
void EventLog::invalidate(CacheLevel tier, std::uint64_t weights_generation) {
  impl_->append_mark(Impl::Kind::kInvalidated, tier, weights_generation);
}
std::size_t EventLog::expect_token_ids(std::span<const BlockKey> keys, std::span<const Token> token_ids) {
  return impl_->expect_token_ids(keys, token_ids);
}
void EventLog::forget_token_ids(std::span<const BlockKey> keys) { impl_->forget_token_ids(keys); }
bool EventLog::keeps_token_ids() const { return impl_->keeps_token_ids(); }
std::vector<std::vector<Token>> EventLog::token_ids_of(std::span<const ResidentBlock> blocks) const {
  return impl_->token_ids_of(blocks);
}
EventSource EventLog::source() const { return impl_->source(); }
void EventLog::suspend(CacheLevel tier) { impl_->set_suspended(tier, true); }
void EventLog::resume(CacheLevel tier) { impl_->set_suspended(tier, false); }
bool EventLog::is_suspended(CacheLevel tier) const { return impl_->is_suspended(tier); }
std::uint64_t EventLog::last_sequence() const { return impl_->last_sequence(); }
std::uint64_t EventLog::oldest_sequence() const { return impl_->oldest_sequence(); }
Result<EventBatch> EventLog::read(std::uint64_t from, std::size_t max_blocks) const {
  return impl_->read(from, max_blocks);
}
bool EventLog::wake_after(std::uint64_t sequence, EventWaker& waker) { return impl_->wake_after(sequence, waker); }
void EventLog::forget(const EventWaker& waker) { impl_->forget(waker); }
std::size_t EventLog::bytes() const { return sizeof(*this) + impl_->bytes(); }

void EventLog::Impl::on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks,
                                   std::span<const Token> tokens) {
  if (blocks.empty()) {
    return;
  }
  // One hold of the lock for the batch, so that a reader of last_sequence() sees all of the batch or nothing.
  const MutexLock lock(mutex_);
  std::size_t tokens_per_block = 0;
  if (!tokens.empty()) {
    tokens_per_block = tokens.size() / blocks.size();
    CAIRN_CHECK(tokens_per_block * blocks.size() == tokens.size(), "token ids of whole blocks are given for a batch");
  }
  if (keeps_token_ids_) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      known_.stored(tier, blocks[i].key, tokens.subspan(i * tokens_per_block, tokens_per_block));
    }
  }
  const bool looks_up = keeps_token_ids_ && tokens.empty();
  while (!blocks.empty()) {
    std::size_t length = chain_length(blocks);
    std::size_t recorded = tokens_per_block;
    if (looks_up) {
      length = std::min(length, known_alike(blocks));
      recorded = known_.find(blocks.front().key).size();
    }
    if (recorded > tokens_.capacity()) {
      recorded = 0;  // token ids are not recorded, or those of one block do not fit
    }
    const std::size_t token_count = length * tokens_per_block;
    append_chain(tier, blocks.first(length), tokens.first(token_count), recorded);
    blocks = blocks.subspan(length);
    tokens = tokens.subspan(token_count);
  }
}

std::size_t EventLog::Impl::known_alike(std::span<const ResidentBlock> blocks) const {
  const bool is_known = !known_.find(blocks.front().key).empty();
  const auto other = std::ranges::find_if(blocks, [&](const ResidentBlock& block) CAIRN_REQUIRES(mutex_) {
    return known_.find(block.key).empty() == is_known;
  });
  return static_cast<std::size_t>(other - blocks.begin());
}

void EventLog::Impl::append_chain(CacheLevel tier, std::span<const ResidentBlock> chain, std::span<const Token> tokens,
                                  std::size_t tokens_per_block) {
  std::size_t most = blocks_.capacity();
  if (tokens_per_block != 0) {
    most = std::min(most, tokens_.capacity() / tokens_per_block);
  }
  for (std::size_t begin = 0; begin < chain.size(); begin += most) {
    const std::span<const ResidentBlock> piece = chain.subspan(begin, std::min(most, chain.size() - begin));
    Record& record = append(Kind::kStored, tier, piece.size());
    record.parent = piece.front().parent;
    blocks_.write(record.first_block, piece,
                  [](const ResidentBlock& block) { return StoredBlock{block.key, block.tokens_hash}; });
    if (tokens_per_block != 0) {
      const std::size_t count = piece.size() * tokens_per_block;
      record.tokens = static_cast<std::uint32_t>(count);
      const auto write = [this](std::span<const Token> from) CAIRN_REQUIRES(mutex_) {
        tokens_.write(next_token_, from, [](Token token) { return token; });
        next_token_ += from.size();
      };
      if (!tokens.empty()) {
        write(tokens.subspan(begin * tokens_per_block, count));
      } else {
        for (const ResidentBlock& block : piece) {
          write(known_.find(block.key));
        }
      }
    }
  }
}

void EventLog::Impl::on_removed(CacheLevel tier, std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  if (keeps_token_ids_) {
    for (const BlockKey& key : keys) {
      known_.removed(tier, key);
    }
  }
  while (!keys.empty()) {
    const std::size_t count = std::min(keys.size(), blocks_.capacity());
    const Record& record = append(Kind::kRemoved, tier, count);
    blocks_.write(record.first_block, keys.first(count), [](const BlockKey& key) { return StoredBlock{key}; });
    keys = keys.subspan(count);
  }
}

void EventLog::Impl::append_mark(Kind kind, CacheLevel tier, std::uint64_t weights_generation) {
  const MutexLock lock(mutex_);
  if (keeps_token_ids_ && kind == Kind::kCleared) {
    known_.cleared(tier);
  }
  Record& record = append(kind, tier, 0);
  if (kind == Kind::kInvalidated) {
    record.first_token = weights_generation;
  }
}

std::size_t EventLog::Impl::expect_token_ids(std::span<const BlockKey> keys, std::span<const Token> token_ids) {
  if (!keeps_token_ids_) {
    return 0;
  }
  const MutexLock lock(mutex_);
  const std::size_t size = known_.block_size();
  CAIRN_CHECK(token_ids.size() == keys.size() * size, "token ids of whole blocks are given");
  std::size_t count = 0;
  while (count < keys.size() && known_.pin(keys[count], token_ids.subspan(count * size, size))) {
    ++count;
  }
  return count;
}

void EventLog::Impl::forget_token_ids(std::span<const BlockKey> keys) {
  if (!keeps_token_ids_) {
    return;
  }
  const MutexLock lock(mutex_);
  for (const BlockKey& key : keys) {
    known_.unpin(key);
  }
}

std::vector<std::vector<Token>> EventLog::Impl::token_ids_of(std::span<const ResidentBlock> blocks) const {
  std::vector<std::vector<Token>> all;
  all.reserve(blocks.size());
  while (!blocks.empty()) {
    const std::size_t count = std::min(blocks.size(), kBlocksPerLock);
    const MutexLock lock(mutex_);
    for (const ResidentBlock& block : blocks.first(count)) {
      const std::span<const Token> tokens = known_.find(block.key);
      all.emplace_back(tokens.begin(), tokens.end());
    }
    blocks = blocks.subspan(count);
  }
  return all;
}

void EventLog::Impl::set_suspended(CacheLevel tier, bool suspended) {
  const MutexLock lock(mutex_);
  if (suspended_[index_of(tier)] != suspended) {
    suspended_.set(index_of(tier), suspended);
    append(suspended ? Kind::kSuspended : Kind::kResumed, tier, 0);
  }
}

bool EventLog::Impl::is_suspended(CacheLevel tier) const {
  const MutexLock lock(mutex_);
  return suspended_[index_of(tier)];
}

EventLog::Impl::Record& EventLog::Impl::append(Kind kind, CacheLevel tier, std::size_t blocks) {
  while (next_ - oldest_ >= records_.capacity() || next_block_ + blocks - oldest_block_ > blocks_.capacity()) {
    oldest_block_ += records_[oldest_].blocks;
    ++oldest_;
  }
  Record& record = records_[next_++];
  record = Record{.first_block = next_block_,
                  .first_token = next_token_,
                  .blocks = static_cast<std::uint32_t>(blocks),
                  .tier = tier,
                  .kind = kind};
  next_block_ += blocks;
  if (!wakers_.empty()) {
    for (EventWaker* const waker : wakers_) {
      waker->wake();
    }
    wakers_.clear();
  }
  return record;
}

bool EventLog::Impl::wake_after(std::uint64_t sequence, EventWaker& waker) {
  const MutexLock lock(mutex_);
  if (next_ - 1 > sequence) {
    return false;
  }
  if (std::ranges::find(wakers_, &waker) == wakers_.end()) {
    wakers_.push_back(&waker);
  }
  return true;
}

void EventLog::Impl::forget(const EventWaker& waker) {
  const MutexLock lock(mutex_);
  std::erase(wakers_, &waker);
}

std::uint64_t EventLog::Impl::last_sequence() const {
  const MutexLock lock(mutex_);
  return next_ - 1;
}

std::uint64_t EventLog::Impl::oldest_sequence() const {
  const MutexLock lock(mutex_);
  return oldest_;
}

std::size_t EventLog::Impl::bytes() const {
  const MutexLock lock(mutex_);
  return sizeof(*this) + records_.bytes() + blocks_.bytes() + tokens_.bytes() + known_.bytes();
}

Result<EventBatch> EventLog::Impl::read(std::uint64_t from, std::size_t max_blocks) const {
  const std::uint64_t last = last_sequence();
  if (from == 0 || from > last + 1) {
    return fail(ErrorCode::kOutOfRange, str_cat("event ", from, " is not in this log, which has numbered events 1 to ",
                                                last, "; take a snapshot and resume after it"));
  }
  const std::size_t most_events = std::clamp<std::size_t>(max_blocks, 1, kMaxEventsPerRead);
  std::vector<Record> records(std::min<std::uint64_t>(last + 1 - from, most_events));
  if (records.empty()) {
    return std::vector<Event>();
  }
  if (!copy_records(from, records)) {
    return lagged(from);
  }
  std::size_t count = 1;
  std::uint64_t block_count = records.front().blocks;
  while (count < records.size() && block_count + records[count].blocks <= max_blocks) {
    block_count += records[count++].blocks;
  }
  records.resize(count);
  std::vector<StoredBlock> blocks(block_count);
  if (!copy_blocks(from, records.front().first_block, blocks)) {
    return lagged(from);
  }

  std::vector<Event> events;
  events.reserve(count);
  std::span<const StoredBlock> rest = blocks;
  for (const Record& record : records) {
    events.push_back({.sequence = from + events.size(),
                      .tier = record.tier,
                      .data = data_of(record, rest.first(record.blocks)),
                      .source = source_});
    rest = rest.subspan(record.blocks);
  }
  return events;
}

EventData EventLog::Impl::data_of(const Record& record, std::span<const StoredBlock> blocks) const {
  switch (record.kind) {
    case Kind::kStored: {
      Stored stored{.parent = {}, .blocks = {blocks.begin(), blocks.end()}, .token_ids = copy_tokens(record)};
      if (blocks.front().key.position() != 0) {
        stored.parent = record.parent;
      }
      return stored;
    }
    case Kind::kRemoved: {
      Removed removed;
      removed.keys.reserve(blocks.size());
      std::ranges::transform(blocks, std::back_inserter(removed.keys), &StoredBlock::key);
      return removed;
    }
    case Kind::kCleared:
      return Cleared{};
    case Kind::kInvalidated:
      return Invalidated{.weights_generation = record.first_token};
    case Kind::kSuspended:
      return Suspended{};
    case Kind::kResumed:
      return Resumed{};
  }
  __builtin_unreachable();
}

bool EventLog::Impl::copy_records(std::uint64_t from, std::span<Record> out) const {
  const MutexLock lock(mutex_);
  if (from < oldest_) {
    return false;
  }
  records_.read(from, out);
  return true;
}

bool EventLog::Impl::copy_blocks(std::uint64_t from, std::uint64_t first_block, std::span<StoredBlock> out) const {
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), kBlocksPerLock);
    const MutexLock lock(mutex_);
    if (from < oldest_) {
      return false;
    }
    blocks_.read(first_block, out.first(count));
    first_block += count;
    out = out.subspan(count);
  }
  return true;
}

std::vector<Token> EventLog::Impl::copy_tokens(const Record& record) const {
  std::vector<Token> tokens(record.tokens);
  std::uint64_t number = record.first_token;
  for (std::span<Token> out = tokens; !out.empty();) {
    const std::size_t count = std::min(out.size(), kTokensPerLock);
    const MutexLock lock(mutex_);
    if (number + tokens_.capacity() < next_token_) {
      return {};
    }
    tokens_.read(number, out.first(count));
    number += count;
    out = out.subspan(count);
  }
  return tokens;
}

Lagged EventLog::Impl::lagged(std::uint64_t from) const { return {.missed_from = from, .oldest = oldest_sequence()}; }

// --- EventSubscriber ---

Result<EventSubscriber> EventSubscriber::resuming(const EventLog& log, std::uint64_t next) {
  EventSubscriber subscriber = joining(log);
  CAIRN_TRY(subscriber.resume_at(next));
  return subscriber;
}

EventBatch EventSubscriber::poll(std::size_t max_blocks) {
  if (needs_snapshot_) {
    return Lagged{.missed_from = next_, .oldest = log_->oldest_sequence()};
  }
  Result<EventBatch> batch = log_->read(next_, max_blocks);
  CAIRN_CHECK(batch.has_value(), "a subscriber's cursor is never ahead of its log");
  if (const auto* events = std::get_if<std::vector<Event>>(&*batch)) {
    next_ += events->size();
  } else {
    needs_snapshot_ = true;
  }
  return *std::move(batch);
}

Status EventSubscriber::resume_at(std::uint64_t next) {
  const std::uint64_t last = log_->last_sequence();
  if (next == 0 || next > last + 1) {
    return fail(ErrorCode::kOutOfRange, str_cat("cannot resume at event ", next, ": the log has numbered events 1 to ",
                                                last, "; it may be a new log, so take a snapshot and resume after it"));
  }
  next_ = next;
  needs_snapshot_ = false;
  return {};
}

}  // namespace cairn
