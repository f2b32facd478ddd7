// PolicyKind: the eviction policies that a pool can have. docs/eviction.md compares them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cairn {

enum class PolicyKind : std::uint8_t {
  kFifo,         // the block that was first released longest ago; later uses change nothing
  kLru,          // the block that was released longest ago
  kLineageTick,  // of the leaves, the one released longest ago; a parent keeps its time when it becomes a leaf
  kLineageFifo,  // of the leaves, the one that has been a leaf longest
  kLfu,          // the block with the fewest uses; uses fade
  kSlru,         // blocks used again are protected, up to four fifths of the pool
  kArc,          // blocks used once against blocks used again, balanced by which evicted keys return
  kS3Fifo,       // a small queue for new blocks, a main queue for blocks used again
  kMultiLru,     // four lists by recent uses, counted by a TinyLFU sketch
  kAdaptive,     // asks the expert that would have done best recently
};

// "fifo", "lru", "lineage", "lineage-fifo", "lfu", "slru", "arc", "s3-fifo", "multi-lru", "adaptive"
[[nodiscard]] std::string_view to_string(PolicyKind kind);
[[nodiscard]] std::optional<PolicyKind> parse_policy(std::string_view name);
inline constexpr PolicyKind kAllPolicies[] = {
    PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kLineageTick, PolicyKind::kLineageFifo, PolicyKind::kLfu,
    PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo,      PolicyKind::kMultiLru,    PolicyKind::kAdaptive};

}  // namespace cairn
