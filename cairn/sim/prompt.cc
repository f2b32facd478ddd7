#include "cairn/sim/prompt.h"

#include <algorithm>

#include "cairn/base/str_cat.h"
#include "cairn/sim/replay.h"

namespace cairn::sim {
namespace {

// Appends blocks to a prompt.
class Appender {
 public:
  Appender(Prompt& prompt, std::uint32_t block_size) : prompt_(prompt), block_size_(block_size) {
    prompt_.tail.reserve(block_size);
  }

  void add(const TokenRun& run) {
    std::uint32_t left = run.count - fill_tail(run.token, run.count);
    if (left >= block_size_) {  // then fill_tail() has completed the tail, which is empty
      prompt_.tail.assign(block_size_, run.token);
      const BlockHash hash = hash_block(prompt_.tail, kNoSalt);
      prompt_.tail.clear();
      for (; left >= block_size_; left -= block_size_) {
        append(hash);
      }
    }
    prompt_.tail.insert(prompt_.tail.end(), left, run.token);
  }

 private:
  // Appends to a partial block; returns how many tokens it took.
  std::uint32_t fill_tail(Token token, std::uint32_t count) {
    if (prompt_.tail.empty()) {
      return 0;
    }
    const std::uint32_t taken = std::min(count, block_size_ - static_cast<std::uint32_t>(prompt_.tail.size()));
    prompt_.tail.insert(prompt_.tail.end(), taken, token);
    if (prompt_.tail.size() == block_size_) {
      append(hash_block(prompt_.tail, kNoSalt));
      prompt_.tail.clear();
    }
    return taken;
  }

  void append(BlockHash block) {
    const auto position = static_cast<std::uint32_t>(prompt_.keys.size());
    const SequenceHash current = position == 0 ? sequence_hash_of_root(block) : chain_hash(parent_, block);
    prompt_.keys.push_back(BlockKey::make_checked(position, current, parent_));
    prompt_.block_hashes.push_back(block);
    parent_ = current;
  }

  Prompt& prompt_;
  std::uint32_t block_size_;
  SequenceHash parent_{0};
};

}  // namespace

Result<Prompt> Prompt::hashed(std::span<const TokenRun> runs, std::uint32_t block_size) {
  if (block_size < 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("block size ", block_size, " is too small; give at least 2 tokens per block"));
  }
  Prompt prompt;
  for (const TokenRun& run : runs) {
    prompt.size += run.count;
  }
  const std::size_t blocks = prompt.size / block_size;
  if (prompt.size == 0) {
    return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  }
  if (blocks > std::size_t{BlockKey::kMaxPosition} + 1) {
    return fail(ErrorCode::kOutOfRange, str_cat("a prompt of ", blocks, " blocks is too long; keys have ",
                                                std::size_t{BlockKey::kMaxPosition} + 1, " positions"));
  }
  prompt.keys.reserve(blocks);
  prompt.block_hashes.reserve(blocks);
  Appender appender(prompt, block_size);
  for (const TokenRun& run : runs) {
    appender.add(run);
  }
  return prompt;
}

}  // namespace cairn::sim
