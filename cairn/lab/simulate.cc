#include "cairn/lab/simulate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cairn/evict/return_model.h"
#include "cairn/lab/policy_cache.h"

namespace cairn::lab {

namespace {

// The tiers of one run.
class Tiers {
 public:
  [[nodiscard]] static Result<Tiers> create(const Trace& trace, const CacheSetup& setup) {
    Tiers tiers(trace, setup);
    std::uint32_t largest = 0;
    for (const Trace::Request& request : trace.requests()) {
      largest = std::max(largest, request.blocks);
    }
    std::shared_ptr<ReturnModel> returns;
    CAIRN_TRY_ASSIGN(returns, ReturnModel::create());
    for (std::size_t i = 0; i <= setup.tiers.size(); ++i) {
      const PolicyCache::Options options{.policy = setup.policy,
                                         .capacity = i == 0 ? setup.capacity : setup.tiers[i - 1].capacity,
                                         .leaves_first = setup.leaves_first,
                                         .hints = i == 0 && !setup.hints.empty(),
                                         .bypass = i == 0 && setup.bypass ? largest : 0,
                                         .returns = returns};
      CAIRN_TRY_ASSIGN(std::unique_ptr<PolicyCache> cache, PolicyCache::create(trace, options));
      tiers.caches_.push_back(std::move(cache));
    }
    for (const AdmissionOptions& options : setup.tiers) {
      CAIRN_TRY_ASSIGN(AdmissionFilter filter, AdmissionFilter::create(options, time_of(trace.requests().front())));
      tiers.filters_.push_back(std::move(filter));
    }
    return tiers;
  }

  HitCounts run() {
    counts_.lower.resize(filters_.size());
    for (std::size_t number = 0; number < trace_.requests().size(); ++number) {
      serve(trace_.requests()[number], setup_.hints.empty() ? nullptr : &setup_.hints[number]);
    }
    for (std::size_t i = 0; i < filters_.size(); ++i) {
      for (const Admission admission : kAllAdmissions) {
        counts_.lower[i].verdicts[static_cast<std::size_t>(admission)] = filters_[i].count(admission);
      }
    }
    return counts_;
  }

 private:
  Tiers(const Trace& trace, const CacheSetup& setup) : trace_(trace), setup_(setup) {
    if (!setup.tiers.empty()) {
      sequence_blocks_.resize(trace.unique_blocks());
    }
  }

  static TimePoint time_of(const Trace::Request& request) {
    return std::chrono::duration_cast<TimePoint>(std::chrono::duration<double, std::milli>(request.time_ms));
  }

  void serve(const Trace::Request& request, const RequestHints* hints) {
    const std::span<const std::uint32_t> blocks = trace_.blocks_of(request);
    const TimePoint now = time_of(request);
    std::uint32_t hits = 0;
    served_by_.resize(caches_.size());
    for (std::vector<std::uint32_t>& served : served_by_) {
      served.clear();
    }
    while (hits < blocks.size()) {
      const auto cache = std::ranges::find_if(caches_, [&](const auto& c) { return c->contains(blocks[hits]); });
      if (cache == caches_.end()) {
        break;
      }
      served_by_[static_cast<std::size_t>(cache - caches_.begin())].push_back(blocks[hits]);
      ++hits;
    }
    counts_.add(trace_, request, hits);
    if (!filters_.empty()) {
      record_request(blocks);
    }
    // Cached blocks behind the first miss are not hits, but the request uses them.
    moving_.clear();
    const std::size_t fits = setup_.bypass ? blocks.size() : std::min<std::size_t>(blocks.size(), setup_.capacity);
    ending_ = setup_.endings ? request.ending : RequestEnding::kUnknown;
    from_below_.clear();
    for (std::size_t tier = 1; tier < caches_.size(); ++tier) {
      counts_.lower[tier - 1].hits += served_by_[tier].size();
      caches_[tier]->use(served_by_[tier], {}, now, ending_, nullptr, moving_);  // evicts nothing
      for (const std::uint32_t block : served_by_[tier]) {
        from_below_.push_back({.block = block, .past = caches_[tier]->past_of(block)});
        from_below_.back().past.is_in_use = true;
      }
    }
    caches_[0]->use(blocks.first(fits), from_below_, now, ending_, hints, moving_);
    counts_.evicted += moving_.size();
    for (std::size_t tier = 1; tier < caches_.size(); ++tier) {
      move_down(tier, now);
    }
  }

  void record_request(std::span<const std::uint32_t> blocks) {
    keys_.clear();
    for (const std::uint32_t block : blocks) {
      keys_.push_back(trace_.key(block));
      sequence_blocks_[block] = static_cast<std::uint32_t>(blocks.size());
    }
    for (AdmissionFilter& filter : filters_) {
      filter.used(keys_);
    }
  }

  // moving_ holds the blocks that the tier above evicted; afterwards, those that this tier evicted for them.
  void move_down(std::size_t tier, TimePoint now) {
    PolicyCache& cache = *caches_[tier];
    std::vector<PolicyCache::Moved> evicted;
    std::vector<PolicyCache::Moved> run;  // of one sequence, leaf first
    const auto add_run = [&] {
      for (const PolicyCache::Moved& block : run) {
        counts_.lower[tier - 1].written += cache.contains(block.block) ? 0 : 1;
      }
      cache.add(run, now, evicted);
      run.clear();
    };
    for (const PolicyCache::Moved& block : moving_) {
      if (!run.empty() && (trace_.parent(run.back().block) != block.block || run.size() == cache.capacity())) {
        add_run();
      }
      // A block that this tier still has gets the time of its last use in the tier above.
      const bool is_here = cache.contains(block.block);
      if (is_here || (filters_[tier - 1].offer(trace_.key(block.block), sequence_blocks_[block.block], now) ==
                          Admission::kAdmitted &&
                      (!setup_.bypass || cache.is_worth_adding(block, now)))) {
        run.push_back(block);
      }
    }
    add_run();
    moving_ = std::move(evicted);
  }

  const Trace& trace_;
  CacheSetup setup_;
  std::vector<std::unique_ptr<PolicyCache>> caches_;
  std::vector<AdmissionFilter> filters_;
  std::vector<std::vector<std::uint32_t>> served_by_;
  std::vector<std::uint32_t> sequence_blocks_;  // by block: the size of the request that used it last
  std::vector<PolicyCache::Moved> moving_;
  std::vector<PolicyCache::Moved> from_below_;
  RequestEnding ending_ = RequestEnding::kUnknown;  // of the request that is served
  std::vector<BlockKey> keys_;
  HitCounts counts_;
};

}  // namespace

Result<HitCounts> simulate(const Trace& trace, const CacheSetup& setup) {
  CAIRN_TRY_ASSIGN(Tiers tiers, Tiers::create(trace, setup));
  return tiers.run();
}

HitCounts simulate_infinite(const Trace& trace) {
  HitCounts counts;
  std::vector<bool> seen(trace.unique_blocks());
  for (const Trace::Request& request : trace.requests()) {
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    std::uint32_t hits = 0;
    while (hits < blocks.size() && seen[blocks[hits]]) {
      ++hits;
    }
    counts.add(trace, request, hits);
    for (const std::uint32_t block : blocks) {
      seen[block] = true;
    }
  }
  return counts;
}

}  // namespace cairn::lab
