#include "cairn/transfer/bounce_executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::uint64_t kPage = 4096;
// The tokens of a head lie beside each other, not the heads of a token.
bool is_head_first(const BlockLayout& layout) {
  const LayerPlace& place = layout.layers().front();
  return layout.shape().heads > 1 && layout.shape().page_size > 1 && place.head_step > place.token_step;
}

struct Ring {
  const RegionPtr& region;
  std::uint32_t places;
  std::uint64_t place_bytes;
};

// Blocks in one piece each, one a place, with rows in the order in which `like` has them.
Result<BlockLayoutPtr> ring_layout(const Ring& ring, const KvShape& shape, const BlockLayout& like) {
  const bool head_first = is_head_first(like);
  std::vector<LayerPlace> layers(shape.layers);
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    LayerPlace& place = layers[i];
    place.kv_step = shape.row_bytes() * shape.page_size * shape.heads;
    place.offset = i * shape.kv * place.kv_step;
    place.block_step = ring.place_bytes;
    place.token_step = shape.row_bytes() * (head_first ? 1 : shape.heads);
    place.head_step = shape.row_bytes() * (head_first ? shape.page_size : 1);
  }
  return BlockLayout::from_places(shape, ring.places, std::move(layers), {ring.region});
}

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Result<std::unique_ptr<BounceExecutor>> BounceExecutor::make(const Clock& clock, TransferExecutor& one,
                                                             TransferExecutor& other, const Options& options) {
  if (options.ring == nullptr || !options.ring->is_host()) {
    return fail(ErrorCode::kInvalidArgument, "the ring of a bounce executor is host memory; give such a region");
  }
  if (options.block_bytes == 0 || options.block_bytes > options.ring->size() || options.transfers == 0 ||
      whole_pages(options.block_bytes) > options.ring->size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a ring of ", options.ring->size(), " bytes for blocks of ", options.block_bytes, " and ",
                        options.transfers, " transfers; it must hold one block at least, better eight"));
  }
  const std::uint64_t places =
      std::min<std::uint64_t>(options.ring->size() / whole_pages(options.block_bytes), UINT32_MAX);
  return std::unique_ptr<BounceExecutor>(
      new BounceExecutor(clock, one, other, options, static_cast<std::uint32_t>(places)));
}

BounceExecutor::BounceExecutor(const Clock& clock, TransferExecutor& one, TransferExecutor& other,
                               const Options& options, std::uint32_t places)
    : options_(options),
      one_(one),
      other_(other),
      places_(places),
      place_bytes_(whole_pages(options.block_bytes)),
      free_places_(places),
      ledger_(clock, options.transfers) {
  std::iota(free_places_.begin(), free_places_.end(), 0U);
  thread_ = start_own_thread("cairn-bounce", [this] { run(); });
}

BounceExecutor::~BounceExecutor() {
  ledger_.close();
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  posted_.notify_all();
  thread_.join();
  // Acquire pairs with the release at the end of post(): a callback may have handed over its news and not yet left.
  while (posting_.load(std::memory_order_acquire) != 0) {
    std::this_thread::yield();
  }
}

Result<BounceExecutor::Leg> BounceExecutor::find_leg(CopyPlanPtr plan) const {
  for (TransferExecutor* const executor : {&one_, &other_}) {
    if (executor->can_move(*plan)) {
      return Leg{.plan = std::move(plan), .executor = executor};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("neither executor of the bounce ring moves blocks from ", to_string(plan->source().kind()),
                      " to ", to_string(plan->destination().kind()), " memory"));
}

Result<BounceExecutor::Route> BounceExecutor::find_route(const CopyPlan& plan) const {
  const KvShape& shape = plan.source().shape();
  if (shape.block_bytes() > place_bytes_) {
    return fail(ErrorCode::kInvalidArgument, str_cat("blocks of ", shape.block_bytes(), " bytes; the bounce ring has ",
                                                     "places of ", place_bytes_, ": give it larger ones"));
  }
  const bool from_file = plan.source().kind() == MemoryKind::kFile;
  const BlockLayout& like = from_file ? plan.source() : plan.destination();
  const Result<BlockLayoutPtr> ring = ring_layout({options_.ring, places_, place_bytes_}, shape, like);
  if (!ring) {
    return Unexpected(Error(ring.error()));
  }
  const auto unheld = [](const BlockLayout& layout) { return BlockLayoutPtr(BlockLayoutPtr(), &layout); };
  // The ring has blocks like the source's. What a plan moves of them takes the same places there.
  BlockPart same_places = plan.part();
  same_places.destination_head = same_places.source_head;
  if (same_places.heads == 0) {
    same_places.heads = shape.heads - same_places.source_head;
  }
  Result<CopyPlanPtr> in = CopyPlan::make(unheld(plan.source()), *ring, same_places);
  Result<CopyPlanPtr> out = CopyPlan::make(*ring, unheld(plan.destination()), plan.part());
  if (!in || !out) {
    return Unexpected(Error(!in ? in.error() : out.error()));
  }
  Result<Leg> first = find_leg(*std::move(in));
  Result<Leg> second = find_leg(*std::move(out));
  if (!first || !second) {
    return Unexpected(Error(!first ? first.error() : second.error()));
  }
  return Route{.in = *std::move(first), .out = *std::move(second)};
}

Result<BounceExecutor::Route> BounceExecutor::route_of(const CopyPlanPtr& plan) {
  // What holds a hop's plan holds the layouts that it names.
  struct Held {
    CopyPlanPtr whole;
    CopyPlanPtr hop;
  };
  const auto holding = [&plan](const Route& route) {
    const auto held = [&plan](const Leg& leg) {
      const CopyPlan* const hop = leg.plan.get();
      return Leg{.plan = CopyPlanPtr(std::make_shared<const Held>(Held{plan, leg.plan}), hop),
                 .executor = leg.executor};
    };
    return Route{.in = held(route.in), .out = held(route.out)};
  };
  {
    const MutexLock lock(mutex_);
    std::erase_if(routes_, [](const KnownRoute& known) { return known.alive.expired(); });
    for (const KnownRoute& known : routes_) {
      if (known.plan == plan.get()) {
        return holding(known.route);
      }
    }
  }
  Result<Route> route = find_route(*plan);
  if (!route) {
    return route;
  }
  Route held = holding(*route);
  const MutexLock lock(mutex_);
  routes_.push_back({.plan = plan.get(), .alive = plan, .route = *std::move(route)});
  return held;
}

bool BounceExecutor::can_move(const CopyPlan& plan) const { return find_route(plan).has_value(); }

Result<TransferId> BounceExecutor::submit(Transfer&& transfer) {
  if (transfer.plan == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "a transfer without a plan");
  }
  if (const Result<Route> route = route_of(transfer.plan); !route) {
    return Unexpected(Error(route.error()));
  }
  Result<TransferId> accepted = ledger_.accept(std::move(transfer));
  if (accepted) {
    const MutexLock lock(mutex_);
    looking_ = true;
    posted_.notify_one();
  }
  return accepted;
}

void BounceExecutor::cancel(TransferId transfer) { ledger_.cancel(transfer); }

void BounceExecutor::check_deadlines() {
  ledger_.check_deadlines();
  one_.check_deadlines();
  other_.check_deadlines();
}

ExecutorLoad BounceExecutor::load() const { return ledger_.load(); }

std::string BounceExecutor::describe() const {
  return str_cat("through ", places_, " blocks of ", place_bytes_, " bytes of ", to_string(options_.ring->kind()),
                 " memory: ", one_.describe(), " and ", other_.describe());
}

}  // namespace cairn
