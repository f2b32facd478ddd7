// BlockRecord: what a full block takes along when it moves between tiers: everything that events say about it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "cairn/sim/move_block.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

struct BlockRecord {
  BlockKey key{};
  SequenceHash hash{};  // the hash in its events
  std::optional<SequenceHash> parent{};
  BlockHash tokens_hash{};
  std::vector<Token> token_ids{};  // empty if unknown
};

// The record of a full block of a Use; `number` is its index among the full blocks.
[[nodiscard]] inline BlockRecord record_of(const Use& use, std::size_t number, SequenceHash hash,
                                           std::optional<SequenceHash> parent) {
  BlockRecord record{.key = use.keys[number], .hash = hash, .parent = parent};
  if (!use.tokens_hashes.empty()) {
    record.tokens_hash = use.tokens_hashes[number];
  }
  if (use.token_ids) {
    const std::size_t block_size = use.token_ids->size() / use.keys.size();
    const std::span<const Token> tokens = use.token_ids->subspan(number * block_size, block_size);
    record.token_ids.assign(tokens.begin(), tokens.end());
  }
  return record;
}

}  // namespace cairn::sim
