#include "cairn/rank/active_rank_transfer.h"

#include <algorithm>
#include <utility>

#include "cairn/wire/combined_checksum.h"

namespace cairn {

ActiveRankTransfer::ActiveRankTransfer(RankTransfer message, const LeaderId& leader, std::uint32_t generation,
                                       TimePoint deadline)
    : message_(std::move(message)),
      leader_(leader),
      generation_(generation),
      deadline_(deadline),
      states_(message_.pairs.size(), BlockState::kDone) {}

bool ActiveRankTransfer::fail(std::size_t block, BlockState state, const std::string& error) {
  if (!is_well(block)) {
    return false;
  }
  states_[block] = state;
  if (error_.empty()) {
    error_ = error;
  }
  return true;
}

StepPoint ActiveRankTransfer::next_point() const {
  if (is_in_step_save() && is_by_layer_ && has_parts_left()) {
    return {begin_of(mark()), static_cast<std::uint32_t>(next_route_ + 1)};
  }
  return mark();
}

void ActiveRankTransfer::use_whole(std::span<const GroupRoute> routes, std::uint32_t rank) {
  whole_ = routes;
  rank_ = rank;
  routes_ = routes;
  is_by_layer_ = false;
  sums_.resize(states_.size() * routes.size());
}

void ActiveRankTransfer::use_layers(std::span<const GroupRoute> routes) {
  routes_ = routes;
  is_by_layer_ = true;
}

ActiveRankTransfer::Part ActiveRankTransfer::next_part() const {
  Part part{.route = next_route_};
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (is_well(i)) {
      part.blocks.push_back(i);
    }
  }
  return part;
}

bool ActiveRankTransfer::may_begin_part(std::uint32_t layers_in_flight) const {
  std::uint32_t layers = routes_[next_route_].layers;
  for (const PartInFlight& part : in_flight_) {
    layers += routes_[part.route].layers;
  }
  return !is_by_layer_ || in_flight_.size() < 2 || layers <= layers_in_flight;
}

Transfer ActiveRankTransfer::transfer_of(const Part& part) const {
  Transfer transfer{.plan = routes_[part.route].plan, .verify = Verify::kMake, .deadline = deadline_};
  transfer.blocks.reserve(part.blocks.size());
  for (const std::uint32_t block : part.blocks) {
    transfer.blocks.push_back({.pair = message_.pairs[block], .tag = message_.tags[block]});
  }
  return transfer;
}

void ActiveRankTransfer::begun(TransferId transfer, TimePoint now) {
  if (in_flight_.empty()) {
    busy_since_ = now;
  }
  in_flight_.push_back({.route = next_route_, .transfer = transfer});
  ++unsettled_;
  ++next_route_;
}

void ActiveRankTransfer::cancel_parts() const {
  for (const PartInFlight& part : in_flight_) {
    routes_[part.route].executor->cancel(part.transfer);
  }
}

void ActiveRankTransfer::ended(const Part& part, const TransferOutcome& outcome, TimePoint now) {
  std::erase_if(in_flight_, [&](const PartInFlight& each) { return each.route == part.route; });
  if (in_flight_.empty()) {
    copied_ += now - busy_since_;
  }
  for (std::size_t i = 0; i < part.blocks.size(); ++i) {
    if (outcome.blocks[i].state == BlockState::kDone) {
      sums_[part.blocks[i] * whole_.size() + routes_[part.route].group] += outcome.blocks[i].sums;
    }
  }
}

bool ActiveRankTransfer::has_outcome() const { return (!has_parts_left() && in_flight_.empty()) || !is_any_well(); }

RankTransferOutcome ActiveRankTransfer::report() {
  is_reported_ = true;
  RankTransferOutcome outcome{.id = id(), .states = states_, .sums = {}, .error = std::move(error_), .copied = copied_};
  outcome.sums.resize(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (is_well(i)) {
      const std::span<const BlockSums> of_groups = std::span(sums_).subspan(i * whole_.size(), whole_.size());
      outcome.sums[i] = of_groups.size() == 1 ? of_groups.front() : combine(of_groups, rank_);
    }
  }
  return outcome;
}

}  // namespace cairn
