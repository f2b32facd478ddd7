#include "cairn/transfer/bounce_executor.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Time until a full executor is tried again; it has no callback for room.
constexpr Duration kRetryAfter = std::chrono::microseconds(500);
// How many parts share the ring: each executor has one, and one waits for each.
constexpr std::uint32_t kPartsInRing = 4;

}  // namespace

Result<std::unique_ptr<BounceExecutor>> BounceExecutor::make(const Clock& clock, TransferExecutor& one,
                                                             TransferExecutor& other, const Options& options) {
  if (options.ring == nullptr || !options.ring->is_host()) {
    return fail(ErrorCode::kInvalidArgument, "the ring of a bounce executor is not host memory; give such a region");
  }
  std::unique_ptr<BounceExecutor> executor;
  if (options.block_bytes > 0 && options.block_bytes <= options.ring->size() && options.transfers > 0) {
    executor.reset(new BounceExecutor(clock, one, other, options));
  }
  if (executor == nullptr || executor->routes_.places() == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a ring of ", options.ring->size(), " bytes for blocks of ", options.block_bytes, " and ",
                        options.transfers, " transfers; it must hold one block at least, better eight"));
  }
  return executor;
}

BounceExecutor::BounceExecutor(const Clock& clock, TransferExecutor& one, TransferExecutor& other,
                               const Options& options)
    : options_(options),
      one_(one),
      other_(other),
      routes_(one, other, options.ring, options.block_bytes),
      free_places_(routes_.places()),
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
  // Acquire pairs with the release at the end of post(): a callback may have handed over its work and not yet returned.
  while (posting_.load(std::memory_order_acquire) != 0) {
    std::this_thread::yield();
  }
}

bool BounceExecutor::can_move(const CopyPlan& plan) const { return routes_.find(plan).has_value(); }

Result<TransferId> BounceExecutor::submit(Transfer&& transfer) {
  if (transfer.plan == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "the transfer has no plan; make one with CopyPlan::make()");
  }
  CAIRN_TRY(routes_.of(transfer.plan));
  CAIRN_TRY_ASSIGN(const TransferId id, ledger_.accept(std::move(transfer)));
  const MutexLock lock(mutex_);
  looking_ = true;
  posted_.notify_one();
  return id;
}

void BounceExecutor::cancel(TransferId transfer) { ledger_.cancel(transfer); }

void BounceExecutor::check_deadlines() {
  ledger_.check_deadlines();
  one_.check_deadlines();
  other_.check_deadlines();
}

ExecutorLoad BounceExecutor::load() const { return ledger_.load(); }

std::string BounceExecutor::describe() const {
  return str_cat("through ", routes_.places(), " blocks of ", routes_.place_bytes(), " bytes of ",
                 to_string(options_.ring->kind()), " memory: ", one_.describe(), " and ", other_.describe());
}

void BounceExecutor::post(std::function<void()> work) {
  posting_.fetch_add(1, std::memory_order_relaxed);  // the lock orders it before what the thread does with the work
  {
    const MutexLock lock(mutex_);
    posts_.push_back(std::move(work));
    posted_.notify_one();
  }
  posting_.fetch_sub(1, std::memory_order_release);
}

void BounceExecutor::run() {
  for (;;) {
    std::deque<std::function<void()>> posts;
    bool closing = false;
    {
      const MutexLock lock(mutex_);
      const auto something = [this]() CAIRN_REQUIRES(mutex_) { return looking_ || closing_ || !posts_.empty(); };
      if (refused_.empty()) {
        // When closing there is nothing to wait for but the parts in flight.
        posted_.wait(mutex_, [&]() CAIRN_REQUIRES(mutex_) {
          return looking_ || !posts_.empty() || (closing_ && in_flight_ == 0);
        });
      } else {
        posted_.wait_for(mutex_, kRetryAfter, something);
      }
      posts.swap(posts_);
      looking_ = false;
      closing = closing_;
    }
    for (const std::function<void()>& work : posts) {
      work();
    }
    while (std::shared_ptr<ActiveTransfer> taken = ledger_.try_take()) {
      Result<BounceRoutes::Route> route = routes_.of(taken->transfer().plan);
      CAIRN_CHECK(route, "an accepted plan has a route through the ring");
      waiting_.push_back(std::make_shared<InFlight>(InFlight{.active = std::move(taken), .route = *std::move(route)}));
    }
    std::deque<PartPtr> again;
    again.swap(refused_);
    for (const PartPtr& part : again) {
      submit_part(part);
    }
    begin_parts();
    if (closing && in_flight_ == 0 && waiting_.empty() && refused_.empty()) {
      const MutexLock lock(mutex_);
      if (posts_.empty()) {
        return;
      }
    }
  }
}

void BounceExecutor::begin_parts() {
  const std::uint32_t most = std::max(1U, routes_.places() / kPartsInRing);
  while (!waiting_.empty() && !free_places_.empty()) {
    const std::shared_ptr<InFlight> transfer = waiting_.front();
    const auto total = static_cast<std::uint32_t>(transfer->active->transfer().blocks.size());
    const std::uint32_t first = transfer->next_block;
    const auto wanted =
        static_cast<std::uint32_t>(std::min<std::size_t>({most, free_places_.size(), std::size_t{total} - first}));
    const std::uint32_t begun = wanted == 0 ? 0 : transfer->active->begin_run(first, wanted);
    transfer->next_block += std::max(1U, begun);  // a block that may not begin is skipped
    if (transfer->next_block >= total) {
      waiting_.pop_front();
    }
    if (begun == 0) {
      continue;
    }
    auto part = std::make_shared<Part>();
    part->transfer = transfer;
    for (std::uint32_t block = first; block < first + begun; ++block) {
      part->blocks.push_back({.index = block, .place = free_places_.front()});
      free_places_.pop_front();
    }
    submit_part(part);
  }
}

void BounceExecutor::submit_part(const PartPtr& part) {
  const Transfer& whole = part->transfer->active->transfer();
  const BounceRoutes::Leg& leg = part->is_out ? part->transfer->route.out : part->transfer->route.in;
  Transfer transfer;
  transfer.plan = leg.plan;
  transfer.verify = whole.verify == Verify::kOff ? Verify::kOff : Verify::kMake;
  transfer.deadline = whole.deadline;
  for (const Block& block : part->blocks) {
    const TransferBlock& given = whole.blocks[block.index];
    transfer.blocks.push_back({.pair = part->is_out ? BlockPair{block.place, given.pair.destination}
                                                    : BlockPair{given.pair.source, block.place},
                               .tag = given.tag});
  }
  transfer.done = [this, part](TransferOutcome&& outcome) {
    post([this, part, outcome = std::move(outcome)] { on_done(part, outcome); });
  };
  transfer.settled = [this, part] { post([this, part] { on_settled(part); }); };
  ++in_flight_;
  const Result<TransferId> accepted = leg.executor->submit(std::move(transfer));
  if (accepted) {
    return;
  }
  --in_flight_;
  if (accepted.error().code == ErrorCode::kExhausted) {
    refused_.push_back(part);
    return;
  }
  for (const Block& block : part->blocks) {
    fail_block(*part, block, accepted.error().message);
  }
}

void BounceExecutor::on_done(const PartPtr& part, const TransferOutcome& outcome) {
  const bool verified = part->transfer->active->transfer().verify != Verify::kOff;
  auto next = std::make_shared<Part>();
  next->transfer = part->transfer;
  next->is_out = true;
  for (std::size_t i = 0; i < part->blocks.size(); ++i) {
    const Block& block = part->blocks[i];
    const BlockOutcome& copied = outcome.blocks[i];
    if (copied.state == BlockState::kExpired) {
      part->late.push_back(block);
      part->late_error = outcome.error;
    } else if (copied.state != BlockState::kDone) {
      fail_block(*part, block, outcome.error);
    } else if (!part->is_out) {
      next->blocks.push_back({.index = block.index, .place = block.place, .sums = copied.sums});
    } else if (verified && copied.sums != block.sums) {
      fail_block(*part, block, str_cat("block ", block.index, " of the transfer changed in the bounce ring"));
    } else {
      finish_block(*part, block, copied.sums);
    }
  }
  if (!next->blocks.empty()) {
    submit_part(next);
  }
}

void BounceExecutor::on_settled(const PartPtr& part) {
  --in_flight_;
  if (!part->late.empty()) {
    // The executor of the part saw the deadline pass: the whole transfer expires before its blocks fail.
    ledger_.check_deadlines();
  }
  for (const Block& block : part->late) {
    fail_block(*part, block, part->late_error);
  }
}

void BounceExecutor::fail_block(const Part& part, const Block& block, const std::string& error) {
  free_places_.push_back(block.place);
  part.transfer->active->fail(block.index, error);
}

void BounceExecutor::finish_block(const Part& part, const Block& block, const BlockSums& sums) {
  free_places_.push_back(block.place);
  part.transfer->active->finish(block.index, sums);
}

}  // namespace cairn
