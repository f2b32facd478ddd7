// EvictionPolicy: in which order the inactive blocks of a pool are evicted.
//
// A policy holds exactly the blocks that could be evicted now. It sees runs of block ids, their keys and classes, and
// time, never handles or bytes. Every block has an eviction class, into which the pool folds tenant and priority. With any policy, a
// lower class is emptied before a higher one; if leaves go first, a block also waits for its children, whatever their
// class. While a policy holds a block, its class changes by reclass() alone, and its key does not change until the
// block is forgotten.
//
// Policies are deterministic: the same calls with the same seed give the same victims. They share one conformance
// suite.
//
// Ownership: one pool owns it. make_policy() builds it over the pool's columns, which outlive it.
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) or O(log n) a block; nothing is allocated after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/clock.h"
#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/evict/block_past.h"
#include "cairn/evict/request_ending.h"
#include "cairn/evict/retention.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class ReturnModel;

enum class EvictionClass : std::uint16_t {};
[[nodiscard]] constexpr std::uint32_t index_of(EvictionClass c) { return static_cast<std::uint32_t>(c); }

// The classes from `first` up to, but not including, `last`.
struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Finds the block before this one in its sequence, in use or not; kNoBlock if the pool does not have it.
class ParentFinder {
 public:
  virtual ~ParentFinder() = default;
  [[nodiscard]] virtual BlockId find_parent(const BlockKey& child) const = 0;
};

// What a policy sees of its pool.
struct PolicyView {
  std::uint32_t capacity = 0;  // block ids are 0 to capacity - 1
  std::uint32_t class_count = 1;
  Column<BlockKey> keys;
  Column<EvictionClass> classes;
  const ParentFinder* parents = nullptr;
  bool leaves_first = false;     // with any policy, evict a block only after its children; needs parents
  KeySeed seed = {};             // of the policy's sketches and choices at random
  const Clock* clock = nullptr;  // for policies that know time; null: time stands still
  // When blocks return, learned together with other pools; null: the policy learns alone. For kAdaptive.
  std::shared_ptr<ReturnModel> returns = nullptr;
};

// Returns true if the block must not be evicted now; it keeps its place in the order. An empty Veto refuses no block.
using Veto = std::function<bool(BlockId)>;

class EvictionPolicy {
 public:
  EvictionPolicy() = default;
  EvictionPolicy(const EvictionPolicy&) = delete;
  EvictionPolicy& operator=(const EvictionPolicy&) = delete;
  virtual ~EvictionPolicy() = default;

  // A run was released: these blocks became evictable, in this order; of one sequence, leaf first. Requires: the policy
  // holds none of them.
  virtual void insert(std::span<const BlockId> block_ids) = 0;
  // These blocks are no longer evictable, and that is not a use: a reader holds them, or they are about to be reset.
  // Requires: the policy holds them.
  virtual void remove(std::span<const BlockId> block_ids) = 0;
  // A request uses a run. Blocks that the policy holds are no longer evictable, given in the order of the run; blocks
  // that were in use already are used once more, which counts as a use. Requires: the policy holds the first, and none
  // of the others.
  virtual void match(std::span<const BlockId> held, std::span<const BlockId> in_use) {
    remove(held);
    touch(in_use);
  }
  // A request uses blocks that evict() took out and that did not lose their keys. They are inserted again later.
  virtual void match_victims(std::span<const BlockId> /*block_ids*/) {}
  // The request that used these blocks last ended like this. A pool says it of the blocks of a request right before it
  // releases them, that is, before their insert(); blocks that the policy holds already may be among them.
  virtual void end(std::span<const BlockId> /*block_ids*/, RequestEnding /*ending*/) {}
  // How requests used a block. All zero if the policy does not know, or does not care.
  [[nodiscard]] virtual BlockPast past_of(BlockId /*block_id*/) const { return {}; }
  // Requests used these blocks of one sequence, given in its order, in another pool, like this. Called before their
  // insert(), which is no use then unless the past says that the blocks are in use. Requires: the policy does not hold them.
  virtual void adopt(std::span<const BlockId> /*block_ids*/, std::span<const BlockPast> /*pasts*/) {}
  // Changes the class of a block to `to`; `of_block` is the entry of the block in the pool's column. This is not a use:
  // the block gets the place that it would have if it had always been of that class. Requires: the policy holds the
  // block.
  virtual void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) = 0;
  // These blocks lost their keys, by eviction or reset: forgets what was learned about them. Requires: the policy holds
  // none of them.
  virtual void forget(std::span<const BlockId> block_ids) = 0;
  // Takes victims out one after the other until `out` is full or none is left, and returns how many. A victim is the
  // next block without a veto of the lowest class in the range that has one. The pool calls forget() when the victim
  // loses its key; if a request uses the block before that, the pool inserts it again.
  [[nodiscard]] virtual std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) = 0;

  // Whether a block with this past is worth more than the next victim. True if the policy does not know.
  [[nodiscard]] virtual bool is_worth_more(const BlockPast& /*past*/, ClassRange /*classes*/, const Veto& /*veto*/) {
    return true;
  }

  void forget(BlockId block_id) { forget({&block_id, 1}); }
  // One victim, or kNoBlock.
  [[nodiscard]] BlockId evict(ClassRange classes, const Veto& veto) {
    BlockId block_id = kNoBlock;
    return evict(classes, veto, {&block_id, 1}) == 1 ? block_id : kNoBlock;
  }

  // Whether a block is evicted only after its children.
  [[nodiscard]] virtual bool leaves_first() const { return false; }
  // If leaves go first: whether the policy holds a child of this block. Requires: the policy does not hold the block.
  [[nodiscard]] virtual bool holds_below(BlockId /*block_id*/) const { return false; }

  [[nodiscard]] virtual std::uint32_t size() const = 0;
  [[nodiscard]] virtual bool contains(BlockId block_id) const = 0;
  // Memory allocated at construction.
  [[nodiscard]] virtual std::size_t bytes() const = 0;

 protected:
  // match() for the blocks that were in use.
  virtual void touch(std::span<const BlockId> /*block_ids*/) {}
};

[[nodiscard]] Result<std::unique_ptr<EvictionPolicy>> make_policy(PolicyKind kind, const PolicyView& view);

}  // namespace cairn
