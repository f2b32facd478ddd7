// KnownTokens: the token ids of blocks, by key, from before a block is stored until the last tier drops it. Internal.
//
// A tier that gets a block by a copy does not know its tokens; the log finds them here, for its events and for snapshots.
//
// Thread safety: one thread at a time; the log's lock.
// Complexity: allocates only in the constructor. cleared() looks at all blocks. If there is no room, token ids are unknown.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/flat_table.h"
#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::internal {

class KnownTokens {
 public:
  // Of up to `blocks` blocks, with `block_size` tokens each; 0 blocks: of none.
  KnownTokens(std::uint32_t blocks, std::uint32_t block_size)
      : block_size_(blocks == 0 ? 0 : block_size), tokens_(std::size_t{blocks} * block_size_) {
    if (block_size_ != 0) {
      table_.reserve(blocks);
      gone_.reserve(blocks);
      free_.reserve(blocks);
      for (std::uint32_t place = blocks; place-- > 0;) {
        free_.push_back(place);
      }
    }
  }

  // 0: nothing is kept.
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }
  [[nodiscard]] std::size_t bytes() const {
    return tokens_.capacity() * sizeof(Token) + free_.capacity() * sizeof(std::uint32_t) +
           gone_.capacity() * (sizeof(BlockKey) + 2 * sizeof(Entry));
  }

  // Keeps the token ids until unpin(), even if no tier has the block. False if there is no room: then there is nothing to
  // unpin.
  [[nodiscard]] bool pin(const BlockKey& key, std::span<const Token> tokens) {
    Entry* const entry = add(key, tokens);
    if (entry != nullptr) {
      ++entry->pins;
    }
    return entry != nullptr;
  }
  // Once for each pin() that returned true.
  void unpin(const BlockKey& key) {
    change(key, [](Entry& entry) {
      CAIRN_CHECK(entry.pins > 0, "only what was pinned is unpinned");
      --entry.pins;
    });
  }
  // The tier has the block from now on. `tokens` may be empty. Returns whether the token ids are known.
  bool stored(CacheLevel tier, const BlockKey& key, std::span<const Token> tokens) {
    Entry* const entry = tokens.empty() ? table_.find(key) : add(key, tokens);
    if (entry != nullptr) {
      entry->tiers.set(index_of(tier));
    }
    return entry != nullptr;
  }
  void removed(CacheLevel tier, const BlockKey& key) {
    change(key, [tier](Entry& entry) { entry.tiers.reset(index_of(tier)); });
  }
  void cleared(CacheLevel tier) {
    gone_.clear();
    table_.for_each([&](const BlockKey& key, const Entry& entry) {
      if (entry.tiers[index_of(tier)]) {
        gone_.push_back(key);
      }
    });
    for (const BlockKey& key : gone_) {
      removed(tier, key);
    }
  }
  // Empty if they are unknown.
  [[nodiscard]] std::span<const Token> find(const BlockKey& key) const {
    const Entry* const entry = table_.find(key);
    return entry == nullptr ? std::span<const Token>() : tokens_of(*entry);
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Entry {
    std::uint32_t place = kNone;  // in tokens_, in blocks
    std::uint32_t pins = 0;
    std::bitset<kCacheLevels> tiers = {};
  };
  struct Traits {
    static std::uint64_t hash(const BlockKey& key) {
      return KeySeed::of_process().mix(key.high_word(), key.low_word());
    }
    static bool is_vacant(const BlockKey& /*key*/, const Entry& entry) { return entry.place == kNone; }
    static constexpr std::uint32_t kMaxPercent = 75;
  };

  [[nodiscard]] std::span<const Token> tokens_of(const Entry& entry) const {
    return std::span(tokens_).subspan(std::size_t{entry.place} * block_size_, block_size_);
  }
  // The entry of the block; null if there is no room for one.
  [[nodiscard]] Entry* add(const BlockKey& key, std::span<const Token> tokens) {
    if (Entry* const entry = table_.find(key)) {
      return entry;
    }
    if (free_.empty() || tokens.size() != block_size_) {
      return nullptr;
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{place} * block_size_));
    return table_.insert(key, {.place = place}).first;
  }
  // Drops the entry if nothing needs it after the change.
  template <typename Change>
  void change(const BlockKey& key, Change make_change) {
    table_.erase_if(key, [&](Entry& entry) {
      make_change(entry);
      const bool is_over = entry.pins == 0 && entry.tiers.none();
      if (is_over) {
        free_.push_back(entry.place);
      }
      return is_over;
    });
  }

  const std::uint32_t block_size_;
  std::vector<Token> tokens_;
  FlatTable<BlockKey, Entry, Traits> table_;
  std::vector<std::uint32_t> free_;
  std::vector<BlockKey> gone_;  // memory that is used again
};

}  // namespace cairn::internal
