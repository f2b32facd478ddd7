// CopyLoan: blocks of a pool that a transfer of an Offloader reads. They go back to the pool when nothing reads them any more,
// whatever came of the transfer.
//
// Thread safety: one thread at a time, except uncount().
// Ownership: the transfer, until it has settled. The counter and the callback outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "cairn/pool/blocks.h"

namespace cairn {

class CopyLoan {
 public:
  // Adds the blocks to `on_loan` until they go back.
  CopyLoan(BorrowedBlocks blocks, std::atomic<std::uint32_t>& on_loan, const std::function<void()>& wake)
      : blocks_(std::in_place, std::move(blocks)), on_loan_(on_loan), wake_(wake), counted_(blocks_->size()) {
    on_loan_ += blocks_->size();
  }
  CopyLoan(const CopyLoan&) = delete;
  CopyLoan& operator=(const CopyLoan&) = delete;
  ~CopyLoan() {
    blocks_.reset();
    uncount();
    if (is_begun_) {
      wake_();
    }
  }

  [[nodiscard]] const BorrowedBlocks& blocks() const { return *blocks_; }
  // A transfer reads the blocks from now on: `wake` is called when they go back.
  void begun() { is_begun_ = true; }
  // Takes the blocks out of `on_loan` now: the transfer is late, and they may never go back.
  void uncount() { on_loan_ -= counted_.exchange(0); }

 private:
  std::optional<BorrowedBlocks> blocks_;
  std::atomic<std::uint32_t>& on_loan_;
  const std::function<void()>& wake_;
  std::atomic<std::uint32_t> counted_;
  bool is_begun_ = false;
};

}  // namespace cairn
