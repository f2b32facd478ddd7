#include "cairn/events/event_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

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

Result<std::unique_ptr<EventLog>> EventLog::create(const EventLogOptions& options) {
  if (options.blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "an event log of 0 blocks cannot keep any event; give it at least 1");
  }
  CAIRN_TRY_ASSIGN(Records records, Records::create(options.blocks));
  CAIRN_TRY_ASSIGN(Blocks blocks, Blocks::create(options.blocks));
  CAIRN_TRY_ASSIGN(Tokens tokens, Tokens::create(options.token_ids));
  return std::unique_ptr<EventLog>(new EventLog(std::move(records), std::move(blocks), std::move(tokens)));
}

EventLog::EventLog(Records records, Blocks blocks, Tokens tokens)
    : records_(std::move(records)), blocks_(std::move(blocks)), tokens_(std::move(tokens)) {}

void EventLog::on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) {
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
  if (tokens_per_block > tokens_.capacity()) {
    tokens_per_block = 0;  // token ids are not recorded, or those of one block do not fit
  }
  while (!blocks.empty()) {
    const std::size_t length = chain_length(blocks);
    const std::size_t token_count = length * tokens_per_block;
    append_chain(tier, blocks.first(length), tokens.first(token_count), tokens_per_block);
    blocks = blocks.subspan(length);
    tokens = tokens.subspan(token_count);
  }
}

void EventLog::append_chain(CacheLevel tier, std::span<const ResidentBlock> chain, std::span<const Token> tokens,
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
      tokens_.write(next_token_, tokens.subspan(begin * tokens_per_block, count), [](Token token) { return token; });
      next_token_ += count;
    }
  }
}

void EventLog::on_removed(CacheLevel tier, std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  while (!keys.empty()) {
    const std::size_t count = std::min(keys.size(), blocks_.capacity());
    const Record& record = append(Kind::kRemoved, tier, count);
    blocks_.write(record.first_block, keys.first(count), [](const BlockKey& key) { return StoredBlock{key}; });
    keys = keys.subspan(count);
  }
}

void EventLog::on_cleared(CacheLevel tier) {
  const MutexLock lock(mutex_);
  append(Kind::kCleared, tier, 0);
}

void EventLog::invalidate(CacheLevel tier, std::uint64_t weights_generation) {
  const MutexLock lock(mutex_);
  append(Kind::kInvalidated, tier, 0).first_token = weights_generation;
}

void EventLog::suspend(CacheLevel tier) {
  const MutexLock lock(mutex_);
  if (!suspended_[index_of(tier)]) {
    suspended_.set(index_of(tier));
    append(Kind::kSuspended, tier, 0);
  }
}

void EventLog::resume(CacheLevel tier) {
  const MutexLock lock(mutex_);
  if (suspended_[index_of(tier)]) {
    suspended_.reset(index_of(tier));
    append(Kind::kResumed, tier, 0);
  }
}

bool EventLog::is_suspended(CacheLevel tier) const {
  const MutexLock lock(mutex_);
  return suspended_[index_of(tier)];
}

EventLog::Record& EventLog::append(Kind kind, CacheLevel tier, std::size_t blocks) {
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
  return record;
}

std::uint64_t EventLog::last_sequence() const {
  const MutexLock lock(mutex_);
  return next_ - 1;
}

std::uint64_t EventLog::oldest_sequence() const {
  const MutexLock lock(mutex_);
  return oldest_;
}

std::size_t EventLog::bytes() const {
  const MutexLock lock(mutex_);
  return sizeof(*this) + records_.bytes() + blocks_.bytes() + tokens_.bytes();
}

Result<EventBatch> EventLog::read(std::uint64_t from, std::size_t max_blocks) const {
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
    events.push_back(
        {.sequence = from + events.size(), .tier = record.tier, .data = data_of(record, rest.first(record.blocks))});
    rest = rest.subspan(record.blocks);
  }
  return events;
}

EventData EventLog::data_of(const Record& record, std::span<const StoredBlock> blocks) const {
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

bool EventLog::copy_records(std::uint64_t from, std::span<Record> out) const {
  const MutexLock lock(mutex_);
  if (from < oldest_) {
    return false;
  }
  records_.read(from, out);
  return true;
}

bool EventLog::copy_blocks(std::uint64_t from, std::uint64_t first_block, std::span<StoredBlock> out) const {
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

std::vector<Token> EventLog::copy_tokens(const Record& record) const {
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

Lagged EventLog::lagged(std::uint64_t from) const { return {.missed_from = from, .oldest = oldest_sequence()}; }

}  // namespace cairn
