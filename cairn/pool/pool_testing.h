// What the tests of the block pool share: keys, filled blocks, an observer that writes down what it is told.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "cairn/pool/block_pool.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

inline void PrintTo(const BlockKey& key, std::ostream* out) { *out << key.to_string(); }

}  // namespace cairn

namespace cairn::testing {

using Keys = std::vector<BlockKey>;

inline constexpr std::uint32_t kBlockSize = 4;

// The keys of `count` blocks that follow `parents`, or begin a sequence. Another name: another sequence.
inline Keys chain(std::uint64_t name, std::size_t count, const Keys& parents = {}) {
  Keys keys;
  std::optional<BlockKey> parent = parents.empty() ? std::nullopt : std::optional(parents.back());
  for (std::size_t i = 0; i < count; ++i) {
    const BlockHash block{(name + 1) * 0x9E3779B97F4A7C15U + i};
    keys.push_back(parent ? *parent->extend(block) : *BlockKey::root(sequence_hash_of_root(block)));
    parent = keys.back();
  }
  return keys;
}

inline Keys joined(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Keys first_of(const Keys& keys, std::size_t count) {
  return {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count)};
}

inline Keys reversed(const Keys& keys) { return {keys.rbegin(), keys.rend()}; }

// A pool with `capacity` blocks of kBlockSize tokens, and the given options besides.
inline std::unique_ptr<BlockPool> make_pool(std::uint32_t capacity, BlockPoolOptions options = {}) {
  options.capacity = capacity;
  options.block_size = kBlockSize;
  return *BlockPool::create(options);
}

inline CompleteBlocks completed(BlockPool& pool, const Keys& keys, TenantId tenant = kDefaultTenant) {
  return *(*pool.allocate(static_cast<std::uint32_t>(keys.size()), tenant)).complete({.keys = keys});
}

// Allocates, names and registers.
inline ImmutableBlocks store(BlockPool& pool, const Keys& keys, const Retention& retention = {},
                             TenantId tenant = kDefaultTenant) {
  return *completed(pool, keys, tenant).register_blocks(retention);
}

// The same, and releases them: they are inactive then.
inline void cache(BlockPool& pool, const Keys& keys, const Retention& retention = {},
                  TenantId tenant = kDefaultTenant) {
  const ImmutableBlocks dropped = store(pool, keys, retention, tenant);
}

// The keys that have to go, in order, to make room for `count` blocks; those are free again afterwards.
inline Keys evicted_for(BlockPool& pool, std::uint32_t count, TenantId tenant = kDefaultTenant) {
  Keys evicted;
  const Result<MutableBlocks> blocks = pool.allocate(count, tenant, evicted);
  EXPECT_TRUE(blocks.has_value());
  return evicted;
}

inline Keys keys_of(const auto& blocks) {
  Keys keys;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    keys.push_back(blocks.key(i));
  }
  return keys;
}

inline Keys resident_keys(const BlockPool& pool) {
  std::vector<ResidentBlock> blocks;
  EXPECT_EQ(pool.list_resident(0, pool.capacity(), blocks), pool.capacity());
  Keys keys;
  for (const ResidentBlock& block : blocks) {
    keys.push_back(block.key);
  }
  return keys;
}

inline void expect_error(const Error& error, ErrorCode code, const char* part) {
  EXPECT_EQ(error.code, code) << error.message;
  EXPECT_THAT(error.message, ::testing::HasSubstr(part));
}

// One call to an observer.
struct Told {
  enum class What : std::uint8_t { kRegistered, kRemoved, kCleared, kMatched };
  What what;
  Keys keys = {};
  friend bool operator==(const Told&, const Told&) = default;
};

inline void PrintTo(const Told& told, std::ostream* out) {
  constexpr const char* kNames[] = {"registered", "removed", "cleared", "matched"};
  *out << kNames[static_cast<std::size_t>(told.what)] << ::testing::PrintToString(told.keys);
}

inline Told registered(Keys keys) { return {Told::What::kRegistered, std::move(keys)}; }
inline Told removed(Keys keys) { return {Told::What::kRemoved, std::move(keys)}; }
inline Told cleared() { return {Told::What::kCleared}; }
inline Told matched(Keys keys) { return {Told::What::kMatched, std::move(keys)}; }

class RecordingObserver final : public PoolObserver {
 public:
  void on_registered(CacheLevel /*tier*/, std::span<const ResidentBlock> blocks,
                     std::span<const Token> tokens) override {
    Told told = registered({});
    for (const ResidentBlock& block : blocks) {
      told.keys.push_back(block.key);
      blocks_.push_back(block);
    }
    told_.push_back(told);
    tokens_.emplace_back(tokens.begin(), tokens.end());
  }
  void on_removed(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    told_.push_back(removed({keys.begin(), keys.end()}));
  }
  void on_cleared(CacheLevel /*tier*/) override { told_.push_back(cleared()); }
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    told_.push_back(matched({keys.begin(), keys.end()}));
  }

  // Since it was last asked.
  [[nodiscard]] std::vector<Told> take() { return std::exchange(told_, {}); }
  [[nodiscard]] const std::vector<ResidentBlock>& blocks() const { return blocks_; }
  // One for each call about registered blocks.
  [[nodiscard]] const std::vector<std::vector<Token>>& tokens() const { return tokens_; }

 private:
  std::vector<Told> told_;
  std::vector<ResidentBlock> blocks_;
  std::vector<std::vector<Token>> tokens_;
};

}  // namespace cairn::testing
