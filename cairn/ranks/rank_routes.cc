#include "cairn/ranks/rank_routes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cairn {

RankRoutes::OfDevice::OfDevice(const ManagerConfig& of_all, int device, const Clock& clock, const Around& around)
    : config(of_all), executors(config, parts) {
  config.device.gpu = std::max(device, 0);
  parts.clock = &clock;
  parts.around = around;
}

Result<std::unique_ptr<RankRoutes>> RankRoutes::make(const ManagerConfig& config, const LayerGroups& groups,
                                                     RankMemory memory, const Clock& clock, const Around& around) {
  std::unique_ptr<RankRoutes> routes(new RankRoutes(std::move(memory)));
  for (const BlockLayoutPtr& layout : routes->memory_.layouts(CacheLevel::kG1)) {
    routes->devices_.try_emplace(layout->device(), config, layout->device(), clock, around);
  }
  // The ways of a manager's links.
  constexpr std::pair<CacheLevel, CacheLevel> kWays[] = {
      {CacheLevel::kG1, CacheLevel::kG2}, {CacheLevel::kG2, CacheLevel::kG1}, {CacheLevel::kG2, CacheLevel::kG3},
      {CacheLevel::kG3, CacheLevel::kG2}, {CacheLevel::kG3, CacheLevel::kG1}, {CacheLevel::kG1, CacheLevel::kG3}};
  for (const auto& [from, to] : kWays) {
    if (routes->memory_.layouts(from).empty() || routes->memory_.layouts(to).empty()) {
      continue;
    }
    if (Status added = routes->add_way(from, to, groups); !added) {
      return Unexpected(added.error());
    }
  }
  return routes;
}

RankRoutes::~RankRoutes() {
  devices_.clear();
  memory_.sync();
}

Status RankRoutes::add_way(CacheLevel from, CacheLevel to, const LayerGroups& groups) {
  const std::span<const BlockLayoutPtr> sources = memory_.layouts(from);
  const std::span<const BlockLayoutPtr> destinations = memory_.layouts(to);
  Way& way = ways_[index_of(from)][index_of(to)];
  way.whole.resize(sources.size());
  // The largest blocks first: what stages blocks is made for the first that it sees, and takes smaller ones too.
  std::vector<std::uint32_t> order(sources.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::uint32_t group) { return sources[group]->shape().block_bytes(); });
  for (const std::uint32_t group : order) {
    OfDevice& device = devices_.at(memory_.layouts(CacheLevel::kG1)[group]->device());
    Result<TransferExecutor*> executor = device.executors.for_copy(*sources[group], *destinations[group]);
    if (!executor) {
      return Unexpected(std::move(executor).error());
    }
    Result<CopyPlanPtr> plan = CopyPlan::make(sources[group], destinations[group]);
    if (!plan) {
      return Unexpected(std::move(plan).error());
    }
    way.whole[group] = {.group = group, .plan = *std::move(plan), .executor = *executor};
  }
  if (to != CacheLevel::kG1) {
    return {};
  }
  for (std::uint32_t layer = 0; layer < groups.model_layers(); ++layer) {
    const LayerGroups::Spot& spot = groups.spot(layer);
    Result<CopyPlanPtr> plan = CopyPlan::make(sources[spot.group], destinations[spot.group],
                                              {.first_layer = spot.first_layer, .layers = spot.layers});
    if (!plan) {
      return Unexpected(std::move(plan).error());
    }
    way.by_layer.push_back({.group = spot.group, .plan = *std::move(plan), .executor = way.whole[spot.group].executor});
  }
  return {};
}

void RankRoutes::check_deadlines() {
  for (auto& [device, of_device] : devices_) {
    of_device.executors.check_deadlines();
  }
}

}  // namespace cairn
