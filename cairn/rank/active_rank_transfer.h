// ActiveRankTransfer: one transfer that a rank carries out: its parts, the state of each block, and the outcome.
//
// A transfer has one part for each group of layers. If the engine expects its blocks layer by layer, or computes them layer
// by layer while they are saved, it has a part for each route of RankRoutes::by_layer() instead, in their order. The sums of
// the parts are added up, so that the checksum of a block is the same either way.
//
// Thread safety: under the lock of RankTransfers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/rank/rank_routes.h"
#include "cairn/rank/step_gate.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/in_step_mark.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class ActiveRankTransfer {
 public:
  struct Part {
    std::size_t route = 0;                   // of routes()
    std::vector<std::uint32_t> blocks = {};  // indexes of the transfer's blocks
  };

  ActiveRankTransfer(RankTransfer message, const LeaderId& leader, std::uint32_t generation, TimePoint deadline);

  [[nodiscard]] const RankTransfer& message() const { return message_; }
  [[nodiscard]] TransferId id() const { return message_.id; }
  [[nodiscard]] const LeaderId& leader() const { return leader_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] bool is_load() const { return message_.to == CacheLevel::kG1; }
  [[nodiscard]] bool is_save() const { return message_.from == CacheLevel::kG1; }
  [[nodiscard]] bool touches_device() const { return is_load() || is_save(); }
  // A save of blocks that the engine computes in the step of the mark.
  [[nodiscard]] bool is_in_step_save() const { return is_save() && is_in_step(message_.not_before); }
  // The step whose content it reads or replaces; of an in-step save computed() of that step.
  [[nodiscard]] StepMark mark() const { return is_in_step_save() ? step_of(message_.not_before) : message_.not_before; }
  // What its next part waits for. When an in-step save has no parts left: what its outcome waits for.
  [[nodiscard]] StepPoint next_point() const;
  // Requires: touches_device(). No transfer has device blocks on both sides.
  [[nodiscard]] std::uint32_t device_block(std::size_t block) const {
    return is_save() ? message_.pairs[block].source : message_.pairs[block].destination;
  }

  // --- blocks ---
  [[nodiscard]] std::size_t blocks() const { return states_.size(); }
  // Whether nothing has gone wrong with the block so far.
  [[nodiscard]] bool is_well(std::size_t block) const { return states_[block] == BlockState::kDone; }
  [[nodiscard]] bool is_any_well() const { return std::ranges::find(states_, BlockState::kDone) != states_.end(); }
  // Gives a block that is well this state. Returns false if it has another one already. The first error is reported.
  bool fail(std::size_t block, BlockState state, const std::string& error);

  // --- parts ---
  // Before the first part begins: one part a group of layers. `rank`: for the sums of several groups.
  void use_whole(std::span<const GroupRoute> routes, std::uint32_t rank);
  // The same layer by layer. Requires: use_whole() was called.
  void use_layers(std::span<const GroupRoute> routes);
  [[nodiscard]] bool is_by_layer() const { return is_by_layer_; }
  [[nodiscard]] std::span<const GroupRoute> routes() const { return routes_; }
  [[nodiscard]] bool has_begun() const { return next_route_ > 0; }
  [[nodiscard]] bool has_parts_left() const { return next_route_ < routes_.size(); }
  void skip_parts() { next_route_ = routes_.size(); }
  // The next part: the blocks that are well. Requires: has_parts_left().
  [[nodiscard]] Part next_part() const;
  [[nodiscard]] Transfer transfer_of(const Part& part) const;
  // The executor has accepted the next part.
  void begun(TransferId transfer, TimePoint now);
  [[nodiscard]] std::size_t parts_in_flight() const { return in_flight_.size(); }
  // Whether another part may be in flight beside those. By layer: the second part always, because an executor that had to wait for
  // the next part would be idle from one part to the next; then as long as there are at most so many layers in flight.
  // Requires: has_parts_left().
  [[nodiscard]] bool may_begin_part(std::uint32_t layers_in_flight) const;
  void cancel_parts() const;
  // A part has ended: adds the sums of its blocks that are done. The caller fails the others.
  void ended(const Part& part, const TransferOutcome& outcome, TimePoint now);
  // The executor does not touch the memory of a part any more.
  void settled() { --unsettled_; }
  [[nodiscard]] bool is_settled() const { return unsettled_ == 0; }

  // --- outcome ---
  // Whether it can be reported: all parts have ended, or no block is well.
  [[nodiscard]] bool has_outcome() const;
  [[nodiscard]] bool is_reported() const { return is_reported_; }
  // Once.
  [[nodiscard]] RankTransferOutcome report();

 private:
  struct PartInFlight {
    std::size_t route;
    TransferId transfer;
  };

  const RankTransfer message_;
  const LeaderId leader_;
  const std::uint32_t generation_;
  const TimePoint deadline_;
  std::span<const GroupRoute> whole_ = {};  // by group
  std::uint32_t rank_ = 0;
  std::span<const GroupRoute> routes_ = {};  // of its parts: those, or the ones by layer
  bool is_by_layer_ = false;
  std::vector<BlockState> states_;    // kDone: well so far
  std::vector<BlockSums> sums_ = {};  // by block, then group
  std::string error_ = {};
  std::size_t next_route_ = 0;
  std::vector<PartInFlight> in_flight_ = {};
  TimePoint busy_since_ = {};           // while parts are in flight
  Duration copied_ = Duration::zero();  // the time in which parts were in flight
  std::size_t unsettled_ = 0;           // parts
  bool is_reported_ = false;
};

}  // namespace cairn
