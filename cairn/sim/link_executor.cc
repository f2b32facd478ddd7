#include "cairn/sim/link_executor.h"

#include <algorithm>
#include <utility>

namespace cairn::sim {

namespace {

constexpr std::size_t kLimit = 4096;  // transfers that are accepted and not settled
constexpr BlockSums kBytes{.products = 1, .words = 1};
constexpr BlockSums kOtherBytes{.products = 2, .words = 1};

}  // namespace

LinkExecutor::LinkExecutor(const Options& options)
    : options_(options), ledger_(options.site->clock(), kLimit, TransferLedger::Callbacks::kOnRequest) {}

LinkExecutor::~LinkExecutor() {
  options_.site->network().leave(*this);
  ledger_.close();
}

LinkExecutor::Copy LinkExecutor::describe_copy(std::shared_ptr<ActiveTransfer> transfer) const {
  const CopyPlan& plan = *transfer->transfer().plan;
  if (plan.source().kind() == MemoryKind::kFile) {
    return {std::move(transfer), CacheLevel::kG3, true};
  }
  if (plan.destination().kind() == MemoryKind::kFile) {
    return {std::move(transfer), CacheLevel::kG3, false};
  }
  const bool reads_host = plan.destination().kind() == MemoryKind::kDevice;
  return {std::move(transfer), CacheLevel::kG2, reads_host};
}

LinkId LinkExecutor::link_of(const Copy& copy) const {
  const WorkerLinks::Pair& pair = copy.tier == CacheLevel::kG3 ? options_.links.disk : options_.links.host;
  return copy.reads_tier ? pair.up : pair.down;
}

Result<cairn::TransferId> LinkExecutor::submit(Transfer&& transfer) {
  Result<cairn::TransferId> id = ledger_.accept(std::move(transfer));
  while (std::shared_ptr<ActiveTransfer> active = ledger_.try_take()) {
    const std::uint64_t bytes = active->transfer().plan->bytes_per_block() * active->transfer().blocks.size();
    Copy copy = describe_copy(std::move(active));
    const LinkId link = link_of(copy);
    in_flight_.emplace(options_.site->network().start(link, bytes, *this), std::move(copy));
  }
  return id;
}

void LinkExecutor::on_arrived(TransferId transfer) {
  arrived_.push_back(std::move(in_flight_.extract(transfer).mapped()));
  options_.site->wake(options_.member);
}

const TierFault* LinkExecutor::fault_of(CacheLevel tier) const {
  const TimePoint now = options_.site->clock().now();
  const auto found = std::ranges::find_if(options_.faults, [&](const TierFault& fault) {
    return fault.level == tier && fault.begin <= now && now < fault.begin + fault.length;
  });
  return found == options_.faults.end() ? nullptr : &*found;
}

void LinkExecutor::end(const Copy& copy) {
  const TierFault* const fault = fault_of(copy.tier);
  if (fault != nullptr && fault->kind == TierFault::Kind::kStall) {
    stalled_.emplace(fault->begin + fault->length, copy);
    return;
  }
  const bool is_wrong = fault != nullptr && fault->kind == TierFault::Kind::kGarbage && copy.reads_tier;
  ActiveTransfer& transfer = *copy.transfer;
  for (std::uint32_t i = 0; i < transfer.transfer().blocks.size(); ++i) {
    if (!transfer.begin(i)) {
      continue;
    }
    if (fault != nullptr && fault->kind == TierFault::Kind::kFail) {
      transfer.fail(i, "simulated I/O error");
    } else {
      transfer.finish(i, is_wrong ? kOtherBytes : kBytes);
    }
  }
}

bool LinkExecutor::run() {
  while (!stalled_.empty() && stalled_.begin()->first <= options_.site->clock().now()) {
    arrived_.push_back(std::move(stalled_.extract(stalled_.begin()).mapped()));
  }
  for (const Copy& copy : std::exchange(arrived_, {})) {
    end(copy);
  }
  return ledger_.run_callbacks();
}

std::optional<TimePoint> LinkExecutor::next_stalled() const {
  return stalled_.empty() ? std::nullopt : std::optional(stalled_.begin()->first);
}

std::optional<TimePoint> LinkExecutor::next_arrival() const {
  std::optional<TimePoint> next = next_stalled();
  if (in_flight_.empty()) {
    return next;
  }
  std::vector<LinkId> links;
  for (const auto& [id, copy] : in_flight_) {
    if (const LinkId link = link_of(copy); std::ranges::find(links, link) == links.end()) {
      links.push_back(link);
    }
  }
  for (const LinkId link : links) {
    const std::optional<TimePoint> arrival = options_.site->network().next_arrival_of(link, *this);
    next = next && arrival ? std::min(next, arrival) : next ? next : arrival;
  }
  return next;
}

}  // namespace cairn::sim
