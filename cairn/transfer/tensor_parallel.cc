#include "cairn/transfer/tensor_parallel.h"

#include <algorithm>
#include <string_view>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

// The heads of every rank, after a check that its layout has as many.
Result<std::vector<HeadShare>> shares_of(std::span<const BlockLayoutPtr> layouts, std::uint32_t whole_heads,
                                         std::string_view side) {
  std::vector<HeadShare> shares;
  for (std::uint32_t rank = 0; rank < layouts.size(); ++rank) {
    CAIRN_TRY_ASSIGN(HeadShare share, share_of(rank, static_cast<std::uint32_t>(layouts.size()), whole_heads));
    if (layouts[rank] == nullptr) {
      return fail(ErrorCode::kInvalidArgument, str_cat("the layout of ", side, " rank ", rank, " is null"));
    }
    if (layouts[rank]->shape().heads != share.heads) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat(side, " rank ", rank, " has ", layouts[rank]->shape().heads, " heads; one of ",
                          layouts.size(), " ranks has ", share.heads, " of ", whole_heads));
    }
    shares.push_back(share);
  }
  if (shares.empty()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("no ", side, " ranks; give a layout for each"));
  }
  return shares;
}

}  // namespace

Result<std::vector<RankPlan>> plan_ranks(std::span<const BlockLayoutPtr> sources,
                                         std::span<const BlockLayoutPtr> destinations,
                                         const TensorParallelOptions& options) {
  CAIRN_TRY_ASSIGN(const std::vector<HeadShare> from, shares_of(sources, options.whole_heads, "source"));
  CAIRN_TRY_ASSIGN(const std::vector<HeadShare> to, shares_of(destinations, options.whole_heads, "destination"));
  std::vector<RankPlan> plans;
  for (std::uint32_t rank = 0; rank < to.size(); ++rank) {
    const HeadShare& wanted = to[rank];
    const std::uint32_t end = wanted.first_head + wanted.heads;
    // The reader's place among the sources, if they were spread over the destinations.
    const auto nearest = static_cast<std::uint32_t>(std::uint64_t{rank} * sources.size() / destinations.size());
    for (std::uint32_t head = wanted.first_head; head < end;) {
      const auto has_head = [&](const HeadShare& share) {
        return share.first_head <= head && head - share.first_head < share.heads;
      };
      const auto first = std::ranges::find_if(from, has_head);
      const auto after = std::find_if_not(first, from.end(), has_head);
      const auto source = std::clamp(nearest, static_cast<std::uint32_t>(first - from.begin()),
                                     static_cast<std::uint32_t>(after - from.begin()) - 1);
      const HeadShare& held = from[source];
      BlockPart part;
      part.first_layer = options.first_layer;
      part.layers = options.layers;
      part.source_head = head - held.first_head;
      part.destination_head = head - wanted.first_head;
      part.heads = std::min(end, held.first_head + held.heads) - head;
      part.whole_head = head;
      part.whole_heads = options.whole_heads;
      Result<CopyPlanPtr> plan = CopyPlan::make(sources[source], destinations[rank], part);
      if (!plan) {
        return fail(plan.error().code,
                    str_cat("from source rank ", source, " to destination rank ", rank, ": ", plan.error().message));
      }
      plans.push_back({source, rank, wanted.replica, *std::move(plan)});
      head += part.heads;
    }
  }
  return plans;
}

}  // namespace cairn
