// ManagerState: resets, which are fences over tiers, edges and loads.
//
// While the fences of the pools are up nothing is found and nothing is registered for others to find. What a copy needs is
// taken from pools, so that a copy either began before, and its targets are of before the fence, or begins afterwards, and
// its sources are. What waits for a copy without being of a pool (blocks of the engine, victims that are claimed, loads) is
// dropped by those who have it, in the same time. So nothing of before is registered after the fences are lowered.
#include <array>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/manager/manager_state.h"

namespace cairn {

namespace {

constexpr std::uint32_t kReclaimStep = 4096;  // blocks: an allocation waits no longer than that takes

// Lowers the fences of tiers when it goes: they do not stay up where memory for what comes in between was not to be had.
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

Result<ResetReport> ManagerState::reset(CacheLevel level) {
  const Tier* const there = tier(level);
  if (there == nullptr || there->pool() == nullptr) {
    return ResetReport();
  }
  std::function<void()> tell;
  const MutexLock lock(fence_mutex_);
  return raise({.levels = {level}}, tell);
}

Result<ResetReport> ManagerState::reset_all(std::optional<std::uint64_t> weights_generation) {
  std::function<void()> tell;
  Result<ResetReport> report = [&]() -> Result<ResetReport> {
    const MutexLock lock(fence_mutex_);
    Fence fence{.is_of_all = true};
    if (weights_generation) {
      if (*weights_generation <= weights_generation_) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("weights generation ", *weights_generation, " is not above ", weights_generation_.load(),
                            ", the present one; give a higher one when the weights change"));
      }
      Namespace space = config_.space();
      space.weights_generation = *weights_generation;
      fence.weights = Tier::NewWeights{.generation = *weights_generation, .space = space.id()};
    }
    for (const CacheLevel level : kManagedTiers) {
      if (tier(level) != nullptr) {
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

Result<ResetReport> ManagerState::raise(const Fence& fence, std::function<void()>& tell) {
  std::vector<std::optional<PoolFence>> plans;
  for (const CacheLevel level : fence.levels) {
    Result<std::optional<PoolFence>> plan = tier(level)->plan_fence();
    if (!plan) {
      return Unexpected(std::move(plan).error());
    }
    plans.push_back(*std::move(plan));
  }
  if (fence.is_of_all) {
    if (const Status status = registry_->expect_all_cleared(); !status) {
      return Unexpected(Error(status.error()));
    }
    ++fences_;
  }
  ResetReport report;
  std::optional<RaisedFences> raised(std::in_place);
  for (std::size_t i = 0; i < fence.levels.size(); ++i) {
    const CacheLevel level = fence.levels[i];
    const PoolFenceOutcome outcome = raised->raise(*tier(level), std::move(plans[i]));
    report.tiers[index_of(level)] = outcome;
    report.reset += outcome.dropped;
    report.in_use += outcome.in_use;
    report.copies += in_flight_into(level);
  }
  if (fence.is_of_all) {
    registry_->all_cleared();
  }
  if (fence.weights) {
    weights_generation_ = fence.weights->generation;
  }
  Status settled;
  for (const CacheLevel level : fence.levels) {
    if (Status status = tier(level)->settle_fence(fence.weights); !status) {
      settled = std::move(status);
    }
    if (fence.weights && events_ != nullptr && tier(level)->pool() != nullptr) {
      events_->invalidate(level, fence.weights->generation);
    }
    if (OffloadEdge* const edge = edge_into(level)) {
      edge->fence(fences_);
    }
  }
  if (fence.is_of_all) {
    Onboarder::Fenced fenced = onboarder_->fence();
    report.loads = fenced.loads;
    tell = std::move(fenced.tell);
  }
  raised.reset();
  for (const CacheLevel level : fence.levels) {
    if (tier(level)->pool() != nullptr) {
      resets_->send(level);
    }
  }
  may_reclaim_ = true;
  wake();
  if (!settled) {
    return fail(
        settled.error().code,
        str_cat("the reset holds in this process but could not be written: ", settled.error().message,
                "; blocks from before it may be found after a restart: reset again when the file can be written, or "
                "remove it before"));
  }
  return report;
}

std::uint64_t ManagerState::in_flight_into(CacheLevel level) const {
  std::uint64_t blocks = 0;
  for (const CacheLevel from : kManagedTiers) {
    const TierLink* const each = link(from, level);
    blocks += each != nullptr && tier(level)->pool() != nullptr ? each->meter().totals().blocks_under_way : 0;
  }
  return blocks;
}

// Whether there is more to reclaim.
bool ManagerState::reclaim() {
  may_reclaim_ = false;  // first: a reset that comes meanwhile says so again
  bool more = false;
  for (const CacheLevel level : kManagedTiers) {
    Tier* const each = tier(level);
    more |= each != nullptr && each->pool() != nullptr && each->pool()->reclaim(kReclaimStep);
  }
  if (more) {
    may_reclaim_ = true;
  }
  return more;
}

}  // namespace cairn
