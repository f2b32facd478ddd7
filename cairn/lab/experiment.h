// Experiment: runs traces with every combination of policy and capacity, on all cores.
//
// Makes one row for each policy and capacity of each trace, in the order given.
//
// Errors: fails on an invalid capacity or policy, and if a trace cannot be read.
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

// A policy, or one of the bounds: "opt", which may bypass, "opt-insert", which may not, and "infinite".
struct Contender {
  enum class Bound : std::uint8_t { kOpt, kOptInsert, kInfinite };
  std::string name;
  std::optional<PolicyKind> policy;  // std::nullopt: a bound
  Bound bound = Bound::kOpt;
};
// "all" is every policy and all bounds. Fails on an unknown name.
[[nodiscard]] Result<std::vector<Contender>> parse_contenders(const std::vector<std::string>& names);
// Whether the contender of this name is a bound.
[[nodiscard]] bool is_bound(std::string_view name);

// "5%" of the distinct blocks of a trace, rounded down but at least one, or a number of blocks.
struct Capacity {
  std::string text;
  double percent = 0;
  std::uint32_t blocks = 0;  // 0: `percent` counts
  [[nodiscard]] std::uint32_t of(const Trace& trace) const;
};
[[nodiscard]] Result<Capacity> parse_capacity(std::string_view text);

// Which blocks that a tier evicts are written to the tier below.
enum class Admit : std::uint8_t {
  kAll,
  kLikely,  // those that are likely to be read again before the tier evicts them
  kTwice,   // of those, the ones that were used twice
};
[[nodiscard]] Result<Admit> parse_admit(std::string_view text);  // "all", "likely", "twice"

struct Conditions {
  bool hints = false;  // give the first tier the hints of request_hints.h
  bool leaves_first = false;
  bool endings = false;              // tell policies how requests ended, as the trace says
  bool bypass = false;               // see CacheSetup
  std::vector<Capacity> tiers = {};  // below the first
  Admit admit = Admit::kLikely;
};

// One run. `lower` has the order of counts.lower. "opt" and "opt-insert" have one tier as large as all tiers together.
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

// Called when a row is done, from any thread, one call at a time. If it returns false, no further row is begun, and
// measure() fails with kCancelled.
using RowDone = std::function<bool(std::size_t done, std::size_t all)>;

[[nodiscard]] Result<std::vector<Row>> measure(const Trace& trace, const std::vector<Contender>& contenders,
                                               const std::vector<Capacity>& capacities,
                                               const Conditions& conditions = {}, const RowDone& done = {});

}  // namespace cairn::lab
