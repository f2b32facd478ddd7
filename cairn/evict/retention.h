// What a user says of how long blocks are kept: the eviction policy of a pool (PolicyKind), the priority and lifetime of
// blocks (Retention), and whether they are needed again (RetentionHint). docs/eviction.md compares the policies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cairn/base/clock.h"

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
  kAdaptive,     // the segment that is least likely to return for the room it takes, by when segments like it returned
};

// "fifo", "lru", "lineage", "lineage-fifo", "lfu", "slru", "arc", "s3-fifo", "multi-lru", "adaptive"
[[nodiscard]] std::string_view to_string(PolicyKind kind);
[[nodiscard]] std::optional<PolicyKind> parse_policy(std::string_view name);
inline constexpr PolicyKind kAllPolicies[] = {
    PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kLineageTick, PolicyKind::kLineageFifo, PolicyKind::kLfu,
    PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo,      PolicyKind::kMultiLru,    PolicyKind::kAdaptive};

// How long a block is kept. With any policy, blocks of higher priority are evicted later.
struct Retention {
  static constexpr std::uint32_t kMaxPriority = 100;
  static constexpr std::uint32_t kDefaultPriority = 35;

  std::uint32_t priority = kDefaultPriority;
  // A block that was inactive for this long gets kDefaultPriority.
  std::optional<Duration> priority_duration = std::nullopt;
  // A block that was inactive for this long expires: it becomes free.
  std::optional<Duration> time_to_live = std::nullopt;
};

// What an engine knows of blocks and a policy cannot know: whether and when they are needed again. A hint may be wrong: it
// shifts the order of eviction for a time and pins nothing; see docs/eviction.md.
struct RetentionHint {
  enum class Kind : std::uint8_t {
    kNone,           // nothing is known: takes back earlier hints
    kReturns,        // needed again in about `in`: the session waits for a tool or a person
    kSystemPrompt,   // many requests start with these blocks
    kWillNotReturn,  // the session has ended
  };
  Kind kind = Kind::kNone;
  Duration in = Duration::zero();  // for kReturns
};

}  // namespace cairn
