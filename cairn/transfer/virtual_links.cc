#include "cairn/transfer/virtual_links.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace cairn {

namespace {

constexpr std::size_t kLimit = 4096;  // transfers that are accepted and not settled

}  // namespace

VirtualLinks::VirtualLinks(const Clock& clock, const Speeds& speeds)
    : clock_(clock), speeds_(speeds), ledger_(clock, kLimit, TransferLedger::Callbacks::kOnRequest) {}

VirtualLinks::~VirtualLinks() { ledger_.close(); }

VirtualLinks::Link VirtualLinks::link_of(const CopyPlan& plan) const {
  if (plan.source().kind() == MemoryKind::kFile) {
    return kFromDisk;
  }
  if (plan.destination().kind() == MemoryKind::kFile) {
    return speeds_.shares_disk ? kFromDisk : kToDisk;
  }
  return plan.source().kind() == MemoryKind::kDevice ? kFromDevice : kToDevice;
}

Result<TransferId> VirtualLinks::submit(Transfer&& transfer) {
  Result<TransferId> id = ledger_.accept(std::move(transfer));
  while (std::shared_ptr<ActiveTransfer> active = ledger_.try_take()) {
    const CopyPlan& plan = *active->transfer().plan;
    const Link link = link_of(plan);
    const double speed = link == kFromDisk || link == kToDisk ? speeds_.disk : speeds_.host;
    const double bytes =
        static_cast<double>(plan.bytes_per_block()) * static_cast<double>(active->transfer().blocks.size());
    TimePoint& free_at = free_at_[link];
    free_at = std::max(free_at, clock_.now()) + speeds_.latency + Duration(std::llround(bytes / speed * 1e9));
    in_flight_.emplace(free_at, std::move(active));
  }
  return id;
}

void VirtualLinks::cancel(TransferId transfer) { ledger_.cancel(transfer); }
void VirtualLinks::check_deadlines() { ledger_.check_deadlines(); }

bool VirtualLinks::run() {
  while (!in_flight_.empty() && in_flight_.begin()->first <= clock_.now()) {
    const std::shared_ptr<ActiveTransfer> active = std::move(in_flight_.extract(in_flight_.begin()).mapped());
    for (std::uint32_t i = 0; i < active->transfer().blocks.size(); ++i) {
      if (active->begin(i)) {
        active->finish(i, BlockSums{.products = 1, .words = 1});
      }
    }
  }
  return ledger_.run_callbacks();
}

TimePoint VirtualLinks::next_time() const { return in_flight_.empty() ? TimePoint::max() : in_flight_.begin()->first; }

}  // namespace cairn
