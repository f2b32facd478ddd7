// Shared by the tests of the block pool: keys, filled blocks, an observer that records its calls.
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

// The keys of `count` blocks that follow `parents`, or begin a sequence. Different names make different sequences.
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

// Allocates, completes and registers.
inline ImmutableBlocks store(BlockPool& pool, const Keys& keys, const Retention& retention = {},
                             TenantId tenant = kDefaultTenant) {
  return *completed(pool, keys, tenant).register_blocks(retention);
}

// The same, and releases them: they are inactive then.
inline void cache(BlockPool& pool, const Keys& keys, const Retention& retention = {},
                  TenantId tenant = kDefaultTenant) {
  const ImmutableBlocks dropped = store(pool, keys, retention, tenant);
}

// The keys that are evicted, in order, to make room for `count` blocks; those are free again afterwards.
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
struct ObserverCall {
  enum class What : std::uint8_t { kRegistered, kRemoved, kCleared, kMatched, kLoaded };
  What what;
  Keys keys = {};
  friend bool operator==(const ObserverCall&, const ObserverCall&) = default;
};

inline void PrintTo(const ObserverCall& call, std::ostream* out) {
  constexpr const char* kNames[] = {"registered", "removed", "cleared", "matched", "loaded"};
  *out << kNames[static_cast<std::size_t>(call.what)] << ::testing::PrintToString(call.keys);
}

inline ObserverCall registered(Keys keys) { return {ObserverCall::What::kRegistered, std::move(keys)}; }
inline ObserverCall removed(Keys keys) { return {ObserverCall::What::kRemoved, std::move(keys)}; }
inline ObserverCall cleared() { return {ObserverCall::What::kCleared}; }
inline ObserverCall matched(Keys keys) { return {ObserverCall::What::kMatched, std::move(keys)}; }
inline ObserverCall loaded(Keys keys) { return {ObserverCall::What::kLoaded, std::move(keys)}; }

class RecordingObserver final : public PoolObserver {
 public:
  void on_registered(CacheLevel /*tier*/, std::span<const ResidentBlock> blocks,
                     std::span<const Token> tokens) override {
    ObserverCall call = registered({});
    for (const ResidentBlock& block : blocks) {
      call.keys.push_back(block.key);
      blocks_.push_back(block);
    }
    calls_.push_back(call);
    tokens_.emplace_back(tokens.begin(), tokens.end());
  }
  void on_removed(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    calls_.push_back(removed({keys.begin(), keys.end()}));
  }
  void on_cleared(CacheLevel /*tier*/) override { calls_.push_back(cleared()); }
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    calls_.push_back(matched({keys.begin(), keys.end()}));
  }
  void on_loaded(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    calls_.push_back(loaded({keys.begin(), keys.end()}));
  }

  // Since the last call.
  [[nodiscard]] std::vector<ObserverCall> take() { return std::exchange(calls_, {}); }
  [[nodiscard]] const std::vector<ResidentBlock>& blocks() const { return blocks_; }
  // One for each call about registered blocks.
  [[nodiscard]] const std::vector<std::vector<Token>>& tokens() const { return tokens_; }

 private:
  std::vector<ObserverCall> calls_;
  std::vector<ResidentBlock> blocks_;
  std::vector<std::vector<Token>> tokens_;
};

}  // namespace cairn::testing
