// The half of BounceExecutor that runs on its thread: blocks are launched on their hops, and ended.
#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/bounce_executor.h"

namespace cairn {

namespace {

// An executor that is full because of others tells us nothing when it has room again.
constexpr Duration kTryAgain = std::chrono::microseconds(500);
// So many hops share the ring: two at each side's hands, and two that wait for them.
constexpr std::uint32_t kHopsInRing = 4;

}  // namespace

void BounceExecutor::post(std::function<void()> news) {
  posting_.fetch_add(1, std::memory_order_relaxed);  // the lock orders it before what the thread does with the news
  {
    const MutexLock lock(mutex_);
    news_.push_back(std::move(news));
    posted_.notify_one();
  }
  posting_.fetch_sub(1, std::memory_order_release);
}

void BounceExecutor::run() {
  for (;;) {
    std::deque<std::function<void()>> news;
    bool closing = false;
    {
      const MutexLock lock(mutex_);
      const auto something = [this]() CAIRN_REQUIRES(mutex_) { return looking_ || closing_ || !news_.empty(); };
      if (refused_.empty()) {
        // A thread that closes has nothing to wait for but its hops.
        posted_.wait(mutex_,
                     [&]() CAIRN_REQUIRES(mutex_) { return looking_ || !news_.empty() || (closing_ && hops_ == 0); });
      } else {
        posted_.wait_for(mutex_, kTryAgain, something);
      }
      news.swap(news_);
      looking_ = false;
      closing = closing_;
    }
    for (const std::function<void()>& item : news) {
      item();
    }
    while (std::shared_ptr<ActiveTransfer> taken = ledger_.try_take()) {
      Result<Route> route = route_of(taken->transfer().plan);
      CAIRN_CHECK(route, "a plan was accepted that has no route through the ring");
      passages_.push_back(std::make_shared<Passage>(Passage{.active = std::move(taken), .route = *std::move(route)}));
    }
    std::deque<HopPtr> again;
    again.swap(refused_);
    for (const HopPtr& hop : again) {
      launch(hop);
    }
    begin_hops();
    if (closing && hops_ == 0 && passages_.empty() && refused_.empty()) {
      const MutexLock lock(mutex_);
      if (news_.empty()) {
        return;
      }
    }
  }
}

void BounceExecutor::begin_hops() {
  const std::uint32_t most = std::max(1U, places_ / kHopsInRing);
  while (!passages_.empty() && !free_places_.empty()) {
    const std::shared_ptr<Passage> passage = passages_.front();
    const auto total = static_cast<std::uint32_t>(passage->active->transfer().blocks.size());
    const std::uint32_t first = passage->next_block;
    const auto wanted =
        static_cast<std::uint32_t>(std::min<std::size_t>({most, free_places_.size(), std::size_t{total} - first}));
    const std::uint32_t begun = wanted == 0 ? 0 : passage->active->begin_run(first, wanted);
    passage->next_block += std::max(1U, begun);  // the one that may not begin is passed over
    if (passage->next_block >= total) {
      passages_.pop_front();
    }
    if (begun == 0) {
      continue;
    }
    auto hop = std::make_shared<Hop>();
    hop->passage = passage;
    for (std::uint32_t block = first; block < first + begun; ++block) {
      hop->entries.push_back({.block = block, .place = free_places_.front()});
      free_places_.pop_front();
    }
    launch(hop);
  }
}

void BounceExecutor::launch(const HopPtr& hop) {
  const Transfer& whole = hop->passage->active->transfer();
  const Leg& leg = hop->second ? hop->passage->route.out : hop->passage->route.in;
  Transfer transfer;
  transfer.plan = leg.plan;
  transfer.verify = whole.verify == Verify::kOff ? Verify::kOff : Verify::kMake;
  transfer.deadline = whole.deadline;
  for (const Entry& entry : hop->entries) {
    const TransferBlock& block = whole.blocks[entry.block];
    transfer.blocks.push_back({.pair = hop->second ? BlockPair{entry.place, block.pair.destination}
                                                   : BlockPair{block.pair.source, entry.place},
                               .tag = block.tag});
  }
  transfer.done = [this, hop](TransferOutcome&& outcome) {
    post([this, hop, outcome = std::move(outcome)] { finish_hop(hop, outcome); });
  };
  transfer.settled = [this, hop] { post([this, hop] { settle_hop(hop); }); };
  ++hops_;
  const Result<TransferId> accepted = leg.executor->submit(std::move(transfer));
  if (accepted) {
    return;
  }
  --hops_;
  if (accepted.error().code == ErrorCode::kExhausted) {
    refused_.push_back(hop);
    return;
  }
  for (const Entry& entry : hop->entries) {
    fail_entry(*hop, entry, accepted.error().message);
  }
}

void BounceExecutor::finish_hop(const HopPtr& hop, const TransferOutcome& outcome) {
  const bool verified = hop->passage->active->transfer().verify != Verify::kOff;
  auto next = std::make_shared<Hop>();
  next->passage = hop->passage;
  next->second = true;
  for (std::size_t i = 0; i < hop->entries.size(); ++i) {
    const Entry& entry = hop->entries[i];
    const BlockOutcome& block = outcome.blocks[i];
    if (block.state == BlockState::kExpired) {
      hop->late.push_back(entry);
      hop->late_error = outcome.error;
    } else if (block.state != BlockState::kDone) {
      fail_entry(*hop, entry, outcome.error);
    } else if (!hop->second) {
      next->entries.push_back({.block = entry.block, .place = entry.place, .sums = block.sums});
    } else if (verified && block.sums != entry.sums) {
      fail_entry(*hop, entry,
                 str_cat("block ", entry.block, " of the transfer changed in the bounce ring between its two hops"));
    } else {
      end_entry(*hop, entry, block.sums);
    }
  }
  if (!next->entries.empty()) {
    launch(next);
  }
}

void BounceExecutor::settle_hop(const HopPtr& hop) {
  --hops_;
  if (!hop->late.empty()) {
    // The hop's executor read the clock before us: the transfer itself is late too, and is told so first.
    ledger_.check_deadlines();
  }
  for (const Entry& entry : hop->late) {
    fail_entry(*hop, entry, hop->late_error);
  }
}

void BounceExecutor::fail_entry(const Hop& hop, const Entry& entry, const std::string& error) {
  free_places_.push_back(entry.place);
  hop.passage->active->fail(entry.block, error);
}

void BounceExecutor::end_entry(const Hop& hop, const Entry& entry, const BlockSums& sums) {
  free_places_.push_back(entry.place);
  hop.passage->active->finish(entry.block, sums);
}

}  // namespace cairn
