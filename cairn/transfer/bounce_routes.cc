#include "cairn/transfer/bounce_routes.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::uint32_t places_in(const Region& ring, std::uint64_t place_bytes) {
  return place_bytes == 0 ? 0
                          : static_cast<std::uint32_t>(std::min<std::uint64_t>(ring.size() / place_bytes, UINT32_MAX));
}

// The tokens of a head lie beside each other, not the heads of a token.
bool is_head_first(const BlockLayout& layout) {
  const LayerPlace& place = layout.layers().front();
  return layout.shape().heads > 1 && layout.shape().page_size > 1 && place.head_step > place.token_step;
}

}  // namespace

BounceRoutes::BounceRoutes(TransferExecutor& one, TransferExecutor& other, RegionPtr ring, std::uint64_t block_bytes)
    : one_(one),
      other_(other),
      ring_(std::move(ring)),
      place_bytes_(whole_pages(block_bytes)),
      places_(places_in(*ring_, place_bytes_)) {}

// Each block in one piece, with rows in the order in which `like` has them.
Result<BlockLayoutPtr> BounceRoutes::ring_layout(const KvShape& shape, const BlockLayout& like) const {
  const bool head_first = is_head_first(like);
  std::vector<LayerPlace> layers(shape.layers);
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    LayerPlace& place = layers[i];
    place.kv_step = shape.row_bytes() * shape.page_size * shape.heads;
    place.offset = i * shape.kv * place.kv_step;
    place.block_step = place_bytes_;
    place.token_step = shape.row_bytes() * (head_first ? 1 : shape.heads);
    place.head_step = shape.row_bytes() * (head_first ? shape.page_size : 1);
  }
  return BlockLayout::from_places(shape, places_, std::move(layers), {ring_});
}

Result<BounceRoutes::Leg> BounceRoutes::find_leg(CopyPlanPtr plan) const {
  for (TransferExecutor* const executor : {&one_, &other_}) {
    if (executor->can_move(*plan)) {
      return Leg{.plan = std::move(plan), .executor = executor};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("neither executor of the bounce ring moves blocks from ", to_string(plan->source().kind()),
                      " to ", to_string(plan->destination().kind()), " memory"));
}

Result<BounceRoutes::Route> BounceRoutes::find(const CopyPlan& plan) const {
  const KvShape& shape = plan.source().shape();
  if (shape.block_bytes() > place_bytes_) {
    return fail(ErrorCode::kInvalidArgument, str_cat("blocks of ", shape.block_bytes(), " bytes; the bounce ring has ",
                                                     "places of ", place_bytes_, ": give it larger ones"));
  }
  const bool from_file = plan.source().kind() == MemoryKind::kFile;
  CAIRN_TRY_ASSIGN(const BlockLayoutPtr ring, ring_layout(shape, from_file ? plan.source() : plan.destination()));
  const auto unheld = [](const BlockLayout& layout) { return BlockLayoutPtr(BlockLayoutPtr(), &layout); };
  // The ring has blocks like the source's. What a plan moves of them takes the same places there.
  BlockPart same_places = plan.part();
  same_places.destination_head = same_places.source_head;
  if (same_places.heads == 0) {
    same_places.heads = shape.heads - same_places.source_head;
  }
  CAIRN_TRY_ASSIGN(CopyPlanPtr in, CopyPlan::make(unheld(plan.source()), ring, same_places));
  CAIRN_TRY_ASSIGN(CopyPlanPtr out, CopyPlan::make(ring, unheld(plan.destination()), plan.part()));
  CAIRN_TRY_ASSIGN(Leg first, find_leg(std::move(in)));
  CAIRN_TRY_ASSIGN(Leg second, find_leg(std::move(out)));
  return Route{.in = std::move(first), .out = std::move(second)};
}

Result<BounceRoutes::Route> BounceRoutes::of(const CopyPlanPtr& plan) {
  // The plan of a leg keeps the layouts that it names alive.
  struct Held {
    CopyPlanPtr whole;
    CopyPlanPtr leg;
  };
  const auto holding = [&plan](const Route& route) {
    const auto held = [&plan](const Leg& leg) {
      const CopyPlan* const raw = leg.plan.get();
      return Leg{.plan = CopyPlanPtr(std::make_shared<const Held>(Held{plan, leg.plan}), raw),
                 .executor = leg.executor};
    };
    return Route{.in = held(route.in), .out = held(route.out)};
  };
  {
    const MutexLock lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.alive.expired(); });
    for (const Known& known : known_) {
      if (known.plan == plan.get()) {
        return holding(known.route);
      }
    }
  }
  CAIRN_TRY_ASSIGN(Route route, find(*plan));
  Route held = holding(route);
  const MutexLock lock(mutex_);
  known_.push_back({.plan = plan.get(), .alive = plan, .route = std::move(route)});
  return held;
}

}  // namespace cairn
