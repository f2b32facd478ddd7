// CopyLoan: blocks of a pool that a copy of an edge reads. They are given back when nothing reads them any more, whatever
// became of the copy.
//
// Thread safety: one thread at a time, except uncount().
// Ownership: the copy, until it has settled. The counter and the callback outlive it.
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
  // `on_loan` has these blocks added until they are given back.
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
  // A copy reads them from now on: the edge is woken when they are given back.
  void begun() { is_begun_ = true; }
  // They may never be given back: the edge does not wait for them any more.
  void uncount() { on_loan_ -= counted_.exchange(0); }

 private:
  std::optional<BorrowedBlocks> blocks_;
  std::atomic<std::uint32_t>& on_loan_;
  const std::function<void()>& wake_;
  std::atomic<std::uint32_t> counted_;
  bool is_begun_ = false;
};

}  // namespace cairn
