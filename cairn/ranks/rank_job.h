// RankWork::Job: one copy in a rank's hands. Only for the sources of RankWork.
//
// Threads:  under RankWork's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/ranks/rank_work.h"

namespace cairn {

struct RankWork::Job {
  RankCopy copy;
  LeaderId leader = {};
  std::uint32_t generation = 0;
  TimePoint deadline = TimePoint::max();
  std::span<const GroupRoute> whole = {};   // by group
  std::span<const GroupRoute> routes = {};  // that it goes by: those, or the ones by layer
  bool by_layer = false;
  std::vector<BlockState> states = {};  // kDone: well so far
  std::vector<BlockSums> sums = {};     // by block, then group
  std::uint32_t groups = 0;
  std::size_t next_route = 0;
  std::size_t unsettled = 0;
  struct UnderWay {
    std::size_t route;
    TransferId transfer;
  };
  std::vector<UnderWay> under_way = {};
  std::string error = {};
  bool is_told = false;

  [[nodiscard]] bool is_well(std::size_t block) const { return states[block] == BlockState::kDone; }
  [[nodiscard]] bool has_well() const { return std::ranges::find(states, BlockState::kDone) != states.end(); }
  [[nodiscard]] bool touches_device() const { return copy.from == CacheLevel::kG1 || copy.to == CacheLevel::kG1; }
  // Of those that touch the device; no copy does with both sides.
  [[nodiscard]] std::uint32_t device_block(std::size_t block) const {
    return copy.from == CacheLevel::kG1 ? copy.pairs[block].source : copy.pairs[block].destination;
  }
};

struct RankWork::Flight {
  std::size_t route = 0;
  std::vector<std::uint32_t> blocks;  // of the job
};

}  // namespace cairn
