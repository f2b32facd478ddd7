#include "cairn/lab/block_trace.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/tokens/hashes.h"
#include "cairn/trace/trace_file.h"

namespace cairn::lab {

namespace {

// Ids are often small numbers in sequence; hashes must be spread.
BlockHash hash_of_id(std::uint64_t id) {
  id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9U;
  id = (id ^ (id >> 27)) * 0x94D049BB133111EBU;
  return BlockHash{(id ^ (id >> 31)) + 0x9E3779B97F4A7C15U};
}

}  // namespace

Result<Trace> Trace::load(const std::string& path, std::uint32_t block_size, const Progress& progress) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the block size is 0; give the number of tokens that an id of the trace stands for");
  }
  CAIRN_TRY_ASSIGN(trace::TraceFile file, trace::TraceFile::open(path));
  using Next = trace::TraceFile::Next;
  Trace trace(path, block_size);
  trace::TraceRow row;
  for (Next next = file.next(row); next != Next::kEnd; next = file.next(row)) {
    if (next == Next::kBroken) {
      return fail(ErrorCode::kCorrupt, file.error());
    }
    if (next == Next::kBadRow) {
      trace.count_bad_row(file.error());
    } else if (const Status added = trace.add(row); !added) {
      trace.count_bad_row(str_cat("line ", file.line(), ": ", added.error().message));
    }
    if (progress && file.line() % 4096 == 0) {
      progress(file.bytes_read());
    }
  }
  if (trace.requests_.empty()) {
    return fail(ErrorCode::kCorrupt, str_cat(path, " has no request in Mooncake's JSONL",
                                             trace.bad_rows_ == 0 ? "" : "; ", trace.first_bad_row_));
  }
  return trace;
}

Status Trace::add(const trace::TraceRow& row) {
  if (row.hash_ids.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a request without blocks");
  }
  if (row.hash_ids.size() > BlockKey::kMaxPosition || keys_.size() + row.hash_ids.size() >= kNoBlock) {
    return fail(ErrorCode::kOutOfRange, str_cat(row.hash_ids.size(), " blocks are more than a trace can have"));
  }
  const auto blocks = static_cast<std::uint32_t>(row.hash_ids.size());
  const std::uint64_t most = std::uint64_t{blocks} * block_size_;
  const std::uint64_t least = most - block_size_ + 1;
  std::uint32_t session = kNoSession;
  if (!row.session.empty()) {
    session = sessions_.try_emplace(row.session, session_count()).first->second;
  }
  // A row without a time, or with a delay in its place, gets the time of the row before it.
  const double latest_ms = requests_.empty() ? 0 : requests_.back().time_ms;
  requests_.push_back({.first = references_.size(),
                       .blocks = blocks,
                       .tokens = row.input_tokens == 0 ? most : std::clamp(row.input_tokens, least, most),
                       .time_ms = std::max(latest_ms, row.timestamp_ms),
                       .session = session,
                       .ending = parse_ending(row.ending).value_or(RequestEnding::kUnknown)});
  known_endings_ += requests_.back().ending != RequestEnding::kUnknown ? 1 : 0;
  SequenceHash hash{};
  std::uint32_t above = kNoBlock;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const BlockHash own = hash_of_id(row.hash_ids[i]);
    const SequenceHash parent = hash;
    hash = i == 0 ? sequence_hash_of_root(own) : chain_hash(parent, own);
    const BlockKey key = BlockKey::make_checked(i, hash, parent);
    const auto [found, is_new] = numbers_.try_emplace(key, unique_blocks());
    if (is_new) {
      keys_.push_back(key);
      parents_.push_back(above);
    }
    above = found->second;
    references_.push_back(above);
  }
  return {};
}

std::uint32_t Trace::find(const BlockKey& key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? kNoBlock : found->second;
}

void Trace::count_bad_row(const std::string& error) {
  if (bad_rows_++ == 0) {
    first_bad_row_ = error;
  }
}

}  // namespace cairn::lab
