// VictimClaim: victims of a pool that are being copied. They are given back, as the first to go, when nothing reads them
// any more, whatever became of the copy.
//
// Owner:    whoever claimed them, then their copy until it has settled.
// Threads:  one at a time, but for uncount().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/pool/blocks.h"

namespace cairn {

class VictimClaim {
 public:
  // `claimed` has these blocks added until they are given back. Both outlive the claim.
  VictimClaim(ImmutableBlocks blocks, std::atomic<std::uint32_t>& claimed, const std::function<void()>& wake)
      : blocks_(std::move(blocks)), claimed_(claimed), wake_(wake), counted_(blocks_.size()) {
    claimed_ += blocks_.size();
  }
  VictimClaim(const VictimClaim&) = delete;
  VictimClaim& operator=(const VictimClaim&) = delete;
  ~VictimClaim() {
    std::move(blocks_).release_as_victims();
    uncount();
    if (is_begun_) {
      wake_();
    }
  }

  [[nodiscard]] std::span<const SlotId> slots() const { return blocks_.slots(); }
  // Keeps the first `count` of them. Requires: the copy has not begun.
  void keep_first(std::uint32_t count) {
    std::vector<bool> which(blocks_.size(), true);
    std::fill_n(which.begin(), count, false);
    const std::uint32_t fewer = blocks_.size() - count;
    blocks_.release_as_victims(which);
    counted_ -= fewer;
    claimed_ -= fewer;
  }
  // A copy reads them from now on: somebody is woken when they are given back.
  void begun() { is_begun_ = true; }
  // They may never be given back: they are not waited for any more.
  void uncount() { claimed_ -= counted_.exchange(0); }

 private:
  ImmutableBlocks blocks_;
  std::atomic<std::uint32_t>& claimed_;
  const std::function<void()>& wake_;
  std::atomic<std::uint32_t> counted_;
  bool is_begun_ = false;
};

}  // namespace cairn
