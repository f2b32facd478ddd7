#include "cairn/manager/manager_fence.h"

#include <array>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Lowers the fences of tiers when it is destroyed, also if memory runs out in between.
class RaisedFences {
 public:
  RaisedFences() = default;
  RaisedFences(const RaisedFences&) = delete;
  RaisedFences& operator=(const RaisedFences&) = delete;
  ~RaisedFences() {
    for (Tier* tier : tiers_) {
      if (tier != nullptr) {
        tier->lower_fence();
      }
    }
  }
  PoolFenceOutcome raise(Tier& tier, std::optional<PoolFence> fence) {
    tiers_[index_of(tier.level())] = &tier;
    return tier.raise_fence(std::move(fence));
  }

 private:
  std::array<Tier*, kCacheLevels> tiers_ = {};
};

}  // namespace

ManagerFence::ManagerFence(const ManagerConfig& config, ManagerTiers& tiers, ResetChannel& resets)
    : config_(config), tiers_(tiers), resets_(resets), weights_generation_(config.model.weights_generation) {}

Result<ResetReport> ManagerFence::reset(CacheLevel level) {
  const Tier* const there = tiers_.tier(level);
  if (there == nullptr || there->pool() == nullptr) {
    return ResetReport();
  }
  std::function<void()> tell;
  const MutexLock lock(mutex_);
  return raise({.levels = {level}}, tell);
}

Result<ResetReport> ManagerFence::reset_all(std::optional<std::uint64_t> weights_generation) {
  std::function<void()> tell;
  Result<ResetReport> report = [&]() -> Result<ResetReport> {
    const MutexLock lock(mutex_);
    Fence fence{.is_of_all = true};
    if (weights_generation) {
      if (*weights_generation <= weights_generation_) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("weights generation ", *weights_generation, " is not above the present one, ",
                            weights_generation_.load(), "; give a higher one when the weights change"));
      }
      Namespace space = config_.space();
      space.weights_generation = *weights_generation;
      fence.weights = Tier::NewWeights{.generation = *weights_generation, .space = space.id()};
    }
    for (const CacheLevel level : kManagedTiers) {
      if (tiers_.tier(level) != nullptr) {
        fence.levels.push_back(level);
      }
    }
    return raise(fence, tell);
  }();
  if (tell) {
    tell();
  }
  return report;
}

Result<ResetReport> ManagerFence::raise(const Fence& fence, std::function<void()>& tell) {
  std::vector<std::optional<PoolFence>> plans;
  for (const CacheLevel level : fence.levels) {
    CAIRN_TRY_ASSIGN(std::optional<PoolFence> plan, tiers_.tier(level)->plan_fence());
    plans.push_back(std::move(plan));
  }
  if (fence.is_of_all) {
    CAIRN_TRY(tiers_.registry().expect_all_cleared());
    ++count_;
  }
  ResetReport report;
  std::optional<RaisedFences> raised(std::in_place);
  for (std::size_t i = 0; i < fence.levels.size(); ++i) {
    const CacheLevel level = fence.levels[i];
    const PoolFenceOutcome outcome = raised->raise(*tiers_.tier(level), std::move(plans[i]));
    report.tiers[index_of(level)] = outcome;
    report.reset += outcome.dropped;
    report.in_use += outcome.in_use;
    report.copies += in_flight_into(level);
  }
  if (fence.is_of_all) {
    tiers_.registry().all_cleared();
  }
  if (fence.weights) {
    weights_generation_ = fence.weights->generation;
  }
  Status settled;
  for (const CacheLevel level : fence.levels) {
    if (Status status = tiers_.tier(level)->settle_fence(fence.weights); !status) {
      settled = std::move(status);
    }
    if (fence.weights && tiers_.events() != nullptr && tiers_.tier(level)->pool() != nullptr) {
      tiers_.events()->invalidate(level, fence.weights->generation);
    }
    if (Offloader* const offloader = tiers_.offloader_into(level)) {
      offloader->fence(count_);
    }
  }
  if (fence.is_of_all) {
    Onboarder::Fenced fenced = tiers_.onboarder().fence();
    report.loads = fenced.loads;
    tell = std::move(fenced.tell);
  }
  raised.reset();
  for (const CacheLevel level : fence.levels) {
    if (tiers_.tier(level)->pool() != nullptr) {
      resets_.send(level);
    }
  }
  tiers_.reclaim_later();
  if (!settled) {
    return fail(
        settled.error().code,
        str_cat(
            "the reset holds in this process but could not be written: ", settled.error().message,
            "; blocks from before may be found after a restart: reset again when the file can be written, or remove "
            "the file before the restart"));
  }
  return report;
}

std::uint64_t ManagerFence::in_flight_into(CacheLevel level) const {
  std::uint64_t blocks = 0;
  for (const CacheLevel from : kManagedTiers) {
    const TierLink* const each = tiers_.link(from, level);
    blocks += each != nullptr && tiers_.tier(level)->pool() != nullptr ? each->meter().totals().blocks_in_flight : 0;
  }
  return blocks;
}

}  // namespace cairn
