#include "cairn/lab/experiment.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/lab/simulate.h"

namespace cairn::lab {

namespace {

std::vector<Contender> all_contenders() {
  std::vector<Contender> all;
  for (const PolicyKind kind : kAllPolicies) {
    all.push_back({.name = std::string(to_string(kind)), .policy = kind});
  }
  all.push_back({.name = "opt", .policy = std::nullopt, .bound = Contender::Bound::kOpt});
  all.push_back({.name = "opt-insert", .policy = std::nullopt, .bound = Contender::Bound::kOptInsert});
  all.push_back({.name = "infinite", .policy = std::nullopt, .bound = Contender::Bound::kInfinite});
  return all;
}

Result<HitCounts> run(const Trace& trace, const Contender& contender, const Row& row, CacheSetup setup) {
  setup.capacity = row.blocks;
  if (contender.policy) {
    setup.policy = *contender.policy;
    return simulate(trace, setup);
  }
  if (contender.bound == Contender::Bound::kInfinite) {
    return simulate_infinite(trace);
  }
  std::uint64_t together = row.blocks;
  for (const Row::Tier& tier : row.lower) {
    together += tier.blocks;
  }
  return simulate_opt(trace, static_cast<std::uint32_t>(std::min<std::uint64_t>(together, trace.unique_blocks())),
                      contender.bound == Contender::Bound::kOpt ? OptInsertion::kMayBypass : OptInsertion::kMustInsert);
}

AdmissionOptions admission_to(std::uint32_t blocks, Admit admit) {
  AdmissionOptions options{.capacity = blocks};
  if (admit == Admit::kAll) {
    options.least_chance = 0;
  } else if (admit == Admit::kTwice) {
    options.least_uses = 2;
  }
  return options;
}

}  // namespace

Result<std::vector<Contender>> parse_contenders(const std::vector<std::string>& names) {
  const std::vector<Contender> all = all_contenders();
  std::vector<Contender> chosen;
  for (const std::string& name : names) {
    if (name == "all") {
      return all;
    }
    const auto found = std::ranges::find(all, name, &Contender::name);
    if (found == all.end()) {
      std::string known = "all";
      for (const Contender& contender : all) {
        known += ", " + contender.name;
      }
      return fail(ErrorCode::kInvalidArgument, str_cat("unknown policy '", name, "' (expected ", known, ")"));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

bool is_bound(std::string_view name) {
  return std::ranges::any_of(all_contenders(),
                             [name](const Contender& each) { return each.name == name && !each.policy; });
}

std::uint32_t Capacity::of(const Trace& trace) const {
  if (blocks > 0) {
    return blocks;
  }
  return std::max(1U, static_cast<std::uint32_t>(percent / 100 * trace.unique_blocks()));
}

Result<Capacity> parse_capacity(std::string_view text) {
  Capacity capacity{.text = std::string(text)};
  const bool is_share = text.ends_with('%');
  const char* const end = text.data() + text.size() - (is_share ? 1 : 0);
  const auto [stop, error] = is_share ? std::from_chars(text.data(), end, capacity.percent)
                                      : std::from_chars(text.data(), end, capacity.blocks);
  const bool sensible = is_share ? capacity.percent > 0 && capacity.percent <= 100 : capacity.blocks > 0;
  if (error != std::errc() || stop != end || !sensible) {
    return fail(
        ErrorCode::kInvalidArgument,
        str_cat("'", text,
                "' is not a capacity; give a number of blocks, such as 4096, or a share of the blocks of the trace, "
                "such as 2%"));
  }
  return capacity;
}

Result<Admit> parse_admit(std::string_view text) {
  constexpr std::pair<std::string_view, Admit> kNames[] = {
      {"all", Admit::kAll}, {"likely", Admit::kLikely}, {"twice", Admit::kTwice}};
  for (const auto& [name, admit] : kNames) {
    if (name == text) {
      return admit;
    }
  }
  return fail(ErrorCode::kInvalidArgument, str_cat("unknown admission '", text, "' (expected all, likely or twice)"));
}

Result<std::vector<Row>> measure(const Trace& trace, const std::vector<Contender>& contenders,
                                 const std::vector<Capacity>& capacities, const Conditions& conditions,
                                 const RowDone& done) {
  std::vector<RequestHints> hints;
  if (conditions.hints) {
    hints = honest_hints(trace);
  }
  CacheSetup setup{.leaves_first = conditions.leaves_first,
                   .endings = conditions.endings,
                   .bypass = conditions.bypass,
                   .hints = hints};
  std::vector<Row::Tier> lower;
  for (const Capacity& tier : conditions.tiers) {
    lower.push_back({.capacity = tier.text, .blocks = tier.of(trace)});
    setup.tiers.push_back(admission_to(lower.back().blocks, conditions.admit));
  }
  std::vector<Row> rows;
  for (const Contender& contender : contenders) {
    for (const Capacity& capacity : capacities) {
      rows.push_back({.trace = trace.name(),
                      .policy = contender.name,
                      .capacity = capacity.text,
                      .blocks = capacity.of(trace),
                      .lower = lower,
                      .counts = {}});
    }
  }
  std::atomic<std::size_t> next{0};  // hands out rows; the threads share nothing else that changes without the mutex
  std::mutex mutex;
  std::size_t finished = 0;
  Status status;
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++) {
      const Result<HitCounts> counts = run(trace, contenders[i / capacities.size()], rows[i], setup);
      const std::lock_guard lock(mutex);
      if (!counts) {
        status = fail(counts.error().code, counts.error().message);
        return;
      }
      rows[i].counts = *counts;
      ++finished;
      if (done && !done(finished, rows.size())) {
        next = rows.size();
        status = fail(ErrorCode::kCancelled, "the caller stopped the measurement");
        return;
      }
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < std::min<std::size_t>(std::thread::hardware_concurrency(), rows.size()); ++i) {
    helpers.emplace_back(work);
  }
  work();
  for (std::thread& helper : helpers) {
    helper.join();
  }
  CAIRN_TRY(std::move(status));
  return rows;
}

}  // namespace cairn::lab
