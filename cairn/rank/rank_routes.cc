#include "cairn/rank/rank_routes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cairn {

namespace {

// Layers that are loaded together have at most so many bytes of a block: copies of this size are as fast as any.
constexpr std::uint64_t kMostRunBytes = std::uint64_t{512} << 10;
// And they are at most this share of the layers that are left.
constexpr std::uint32_t kShareOfRest = 2;

}  // namespace

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
  // As the links of a manager.
  constexpr std::pair<CacheLevel, CacheLevel> kLinks[] = {
      {CacheLevel::kG1, CacheLevel::kG2}, {CacheLevel::kG2, CacheLevel::kG1}, {CacheLevel::kG2, CacheLevel::kG3},
      {CacheLevel::kG3, CacheLevel::kG2}, {CacheLevel::kG3, CacheLevel::kG1}, {CacheLevel::kG1, CacheLevel::kG3}};
  for (const auto& [from, to] : kLinks) {
    if (routes->memory_.layouts(from).empty() || routes->memory_.layouts(to).empty()) {
      continue;
    }
    CAIRN_TRY(routes->add_routes(from, to, groups));
  }
  return routes;
}

RankRoutes::~RankRoutes() {
  devices_.clear();
  memory_.sync();
}

Status RankRoutes::add_routes(CacheLevel from, CacheLevel to, const LayerGroups& groups) {
  const std::span<const BlockLayoutPtr> sources = memory_.layouts(from);
  const std::span<const BlockLayoutPtr> destinations = memory_.layouts(to);
  TierRoutes& routes = routes_[index_of(from)][index_of(to)];
  routes.whole.resize(sources.size());
  // The largest blocks first: a staging ring is made for the first block size that it sees, and takes smaller blocks too.
  std::vector<std::uint32_t> order(sources.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::uint32_t group) { return sources[group]->shape().block_bytes(); });
  for (const std::uint32_t group : order) {
    OfDevice& device = devices_.at(memory_.layouts(CacheLevel::kG1)[group]->device());
    CAIRN_TRY_ASSIGN(TransferExecutor* const executor,
                     device.executors.for_copy(*sources[group], *destinations[group]));
    CAIRN_TRY_ASSIGN(CopyPlanPtr plan, CopyPlan::make(sources[group], destinations[group], memory_.numbering()));
    routes.whole[group] = {.group = group, .plan = std::move(plan), .executor = executor};
  }
  const bool is_in_step = to == CacheLevel::kG1 || (from == CacheLevel::kG1 && to == CacheLevel::kG2);
  return is_in_step ? add_layers(from, to, groups) : Status();
}

Status RankRoutes::add_layers(CacheLevel from, CacheLevel to, const LayerGroups& groups) {
  TierRoutes& routes = routes_[index_of(from)][index_of(to)];
  const std::uint32_t all = groups.model_layers();
  std::uint32_t count = 0;
  for (std::uint32_t first = 0; first < all; first += count) {
    LayerGroups::Spot spot = groups.spot(first);
    const std::uint64_t layer_bytes = memory_.layouts(from)[spot.group]->shape().block_bytes() * spot.layers /
                                      memory_.layouts(from)[spot.group]->shape().layers;
    const std::uint64_t most = std::min<std::uint64_t>(2 * count, (all - first) / kShareOfRest);
    count = 1;
    while (to == CacheLevel::kG1 && count < most && (count + 1) * layer_bytes <= kMostRunBytes) {
      const LayerGroups::Spot& next = groups.spot(first + count);
      if (next.group != spot.group || next.first_layer != spot.first_layer + spot.layers) {
        break;
      }
      spot.layers += next.layers;
      ++count;
    }
    BlockPart part = memory_.numbering();
    part.first_layer = spot.first_layer;
    part.layers = spot.layers;
    part.whole_layer += part.whole_layers == 0 ? 0 : spot.first_layer;
    CAIRN_TRY_ASSIGN(CopyPlanPtr plan,
                     CopyPlan::make(memory_.layouts(from)[spot.group], memory_.layouts(to)[spot.group], part));
    routes.by_layer.push_back({.group = spot.group,
                               .plan = std::move(plan),
                               .executor = routes.whole[spot.group].executor,
                               .first_layer = first,
                               .layers = count});
  }
  return {};
}

void RankRoutes::check_deadlines() {
  for (auto& [device, of_device] : devices_) {
    of_device.executors.check_deadlines();
  }
}

}  // namespace cairn
