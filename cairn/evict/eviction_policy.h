// EvictionPolicy: which evictable block goes first.
//
// Does:     holds exactly the blocks that could be evicted now (nobody references them) in an order, and gives them up
//           in that order. It sees block numbers, keys and classes, never handles, bytes or time.
// Classes:  every block has an eviction class. A lower class is emptied before a higher one, whatever the policy (but
//           where leaves go first, a block waits for those below it, whatever their class); the pool folds tenant and
//           priority into it. A block's class changes while the policy holds it by reclass() alone, and its key not until
//           it is forgotten.
// Owner:    one pool; built by make_policy() over the pool's columns, which outlive it.
// Threads:  none of its own; every call is made under the pool's lock.
// Costs:    O(1) or O(log n) a block; nothing is allocated after construction.
// Obliges:  deterministic: the same calls give the same victims, with the same seed. One conformance suite holds
//           for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class EvictionClass : std::uint16_t {};
[[nodiscard]] constexpr std::uint32_t index_of(EvictionClass c) { return static_cast<std::uint32_t>(c); }

// Half open: first up to but not including last.
struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Finds the block that holds a block's parent, in whatever state it is; kNoBlock where none does.
class ParentFinder {
 public:
  virtual ~ParentFinder() = default;
  [[nodiscard]] virtual BlockId find_parent(const BlockKey& child) const = 0;
};

// What a policy may see of its pool.
struct PolicyView {
  std::uint32_t capacity = 0;  // blocks are 0 to capacity - 1
  std::uint32_t class_count = 1;
  Column<BlockKey> keys;
  Column<EvictionClass> classes;
  const ParentFinder* parents = nullptr;
  bool leaves_first = false;  // no block goes before those below it, whatever the policy; needs parents
  KeySeed seed = {};          // of sketches: the same calls give the same victims with the same seed
};

// Says that a block must not be evicted now; it stays where it is in the order. Empty: no objection to any.
using Veto = std::function<bool(BlockId)>;

class EvictionPolicy {
 public:
  EvictionPolicy() = default;
  EvictionPolicy(const EvictionPolicy&) = delete;
  EvictionPolicy& operator=(const EvictionPolicy&) = delete;
  virtual ~EvictionPolicy() = default;

  // These became evictable, in this order; where several belong to one sequence, leaf first. None is held already.
  virtual void insert(std::span<const BlockId> block_ids) = 0;
  // These are held and are no longer evictable: referenced again or about to be reset.
  virtual void remove(std::span<const BlockId> block_ids) = 0;
  // These were found while they were in use, and are used once more: they count as used again, though they were not
  // evictable in between. None is held.
  virtual void touch(std::span<const BlockId> /*blocks*/) {}
  // The block, which is held, is of another class from now on: `of_block`, its place in the pool's column, becomes `to`.
  // That is no use of it: among those of the class it stands where it would if it had been of that class all along.
  virtual void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) = 0;
  // These lost their keys, by eviction or reset: nothing learned about them applies to what comes next. None is held.
  virtual void forget(std::span<const BlockId> block_ids) = 0;
  // Gives up victims one after the other until `out` is full or nothing is left, and returns how many: each time the
  // next of the lowest class in the range that has one without a veto. A victim is forgotten when it loses its key; one
  // that was wanted before that is inserted again, as a block that was used.
  [[nodiscard]] virtual std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) = 0;

  void forget(BlockId block_id) { forget({&block_id, 1}); }
  // One victim, or kNoBlock.
  [[nodiscard]] BlockId evict(ClassRange classes, const Veto& veto) {
    BlockId block_id = kNoBlock;
    return evict(classes, veto, {&block_id, 1}) == 1 ? block_id : kNoBlock;
  }

  // Whether no block goes before those below it, and whether some that are held hang below this block, which is not: it
  // would have to wait for them.
  [[nodiscard]] virtual bool leaves_first() const { return false; }
  [[nodiscard]] virtual bool holds_below(BlockId /*block*/) const { return false; }

  [[nodiscard]] virtual std::uint32_t size() const = 0;
  [[nodiscard]] virtual bool contains(BlockId block_id) const = 0;
  // Memory taken at construction.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

enum class PolicyKind : std::uint8_t {
  kFifo,         // the block that was released first goes first; that it is used again changes nothing
  kLru,          // the block released longest ago goes first
  kLineageTick,  // leaves only, the one released longest ago first; a parent keeps its time when it becomes a leaf
  kLineageFifo,  // leaves only, the one that has been a leaf longest first
  kLfu,          // the one with the fewest uses, which fade
  kSlru,         // blocks used again are protected, up to four fifths of the pool
  kArc,          // used once against used again, balanced by which of the evicted come back
  kS3Fifo,       // a small queue for newcomers, a main one for those used again
  kMultiLru,     // four lists by uses of late, as a TinyLFU sketch counts them
  kAdaptive,     // what an expert says, that one which would have done best of late
};

// "fifo", "lru", "lineage", "lineage-fifo", "lfu", "slru", "arc", "s3-fifo", "multi-lru", "adaptive"
[[nodiscard]] std::string_view to_string(PolicyKind kind);
[[nodiscard]] std::optional<PolicyKind> parse_policy(std::string_view name);
inline constexpr PolicyKind kAllPolicies[] = {
    PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kLineageTick, PolicyKind::kLineageFifo, PolicyKind::kLfu,
    PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo,      PolicyKind::kMultiLru,    PolicyKind::kAdaptive};

[[nodiscard]] Result<std::unique_ptr<EvictionPolicy>> make_policy(PolicyKind kind, const PolicyView& view);

}  // namespace cairn
