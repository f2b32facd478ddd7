// Experiment: traces, policies and capacities, every one with every other, on all cores.
//
// Does:     makes one row for each policy and capacity of each trace, in the order they were asked for.
// Fails:    on a capacity that makes no sense, a trace that cannot be read, a policy that cannot be made.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/lab/block_trace.h"
#include "cairn/lab/hit_counts.h"

namespace cairn::lab {

// What can be judged: a policy, or one of the two bounds, "opt" and "infinite".
struct Contender {
  enum class Bound : std::uint8_t { kOpt, kInfinite };
  std::string name;
  std::optional<PolicyKind> policy;  // none: a bound
  Bound bound = Bound::kOpt;
};
// "all" is every policy and both bounds; an unknown name fails with those that there are.
[[nodiscard]] Result<std::vector<Contender>> parse_contenders(const std::vector<std::string>& names);

// "5%" of the distinct blocks of a trace, rounded down but at least one, or a number of blocks.
struct Capacity {
  std::string text;
  double percent = 0;
  std::uint32_t blocks = 0;  // 0: it is a share
  [[nodiscard]] std::uint32_t of(const Trace& trace) const;
};
[[nodiscard]] Result<Capacity> parse_capacity(std::string_view text);

// What lower tiers are given of the blocks that the tier above evicts.
enum class Admit : std::uint8_t {
  kAll,
  kLikely,  // those that are read again before the tier evicts them, as far as can be told
  kTwice,   // of those, the ones that were used twice
};
[[nodiscard]] Result<Admit> parse_admit(std::string_view text);  // "all", "likely", "twice"

struct Conditions {
  bool hints = false;  // the first tier is told what an engine could know: request_hints.h
  bool leaves_first = false;
  std::vector<Capacity> tiers = {};  // those below the first
  Admit admit = Admit::kLikely;
};

// One run. The lower tiers are in the order of counts.lower; the clairvoyant has one tier as large as all together.
struct Row {
  struct Tier {
    std::string capacity;
    std::uint32_t blocks = 0;
  };
  std::string trace;
  std::string policy;
  std::string capacity;
  std::uint32_t blocks = 0;
  std::vector<Tier> lower = {};
  HitCounts counts;
};

// Called from any thread, one at a time, when a row is done.
using RowDone = std::function<void(std::size_t done, std::size_t all)>;

[[nodiscard]] Result<std::vector<Row>> measure(const Trace& trace, const std::vector<Contender>& contenders,
                                               const std::vector<Capacity>& capacities,
                                               const Conditions& conditions = {}, const RowDone& done = {});

}  // namespace cairn::lab
