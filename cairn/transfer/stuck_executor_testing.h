// For tests of shutdown while I/O hangs: an executor whose copies never end.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cairn/transfer/executor.h"

namespace cairn::testing {

// State shared with the test, because the executor may outlive the test's other objects.
struct StuckIo {
  std::promise<void> promise;
  std::shared_future<void> returns = promise.get_future().share();  // once `promise` is kept
  std::atomic<bool> hangs{false};                                   // copies from now on
  std::atomic<int> stuck{0};                                        // copies that hang
  std::atomic<int> ended{0};                                        // executors that had such copies
};

// Like a disk that hangs: neither a cancel nor a deadline ends a copy, and the destructor waits for all of them.
class StuckExecutor final : public TransferExecutor {
 public:
  StuckExecutor(std::shared_ptr<StuckIo> io, std::unique_ptr<TransferExecutor> inside)
      : io_(std::move(io)), inside_(std::move(inside)) {}
  ~StuckExecutor() override {
    if (kept_.empty()) {
      return;
    }
    io_->returns.wait();
    for (Transfer& transfer : kept_) {
      TransferOutcome outcome{.blocks = {}, .error = "the disk hung"};
      outcome.blocks.resize(transfer.blocks.size(), {.state = BlockState::kFailed});
      transfer.done(std::move(outcome));
      if (transfer.settled) {
        transfer.settled();
      }
    }
    kept_.clear();
    inside_.reset();
    ++io_->ended;
  }
  Result<TransferId> submit(Transfer&& transfer) override {
    if (!io_->hangs) {
      return inside_->submit(std::move(transfer));
    }
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(transfer));
    ++io_->stuck;
    return TransferId{~kept_.size()};
  }
  void cancel(TransferId transfer) override { inside_->cancel(transfer); }
  void check_deadlines() override { inside_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_->load(); }
  [[nodiscard]] std::string describe() const override { return "stuck: " + inside_->describe(); }

 private:
  const std::shared_ptr<StuckIo> io_;
  std::mutex mutex_;
  std::vector<Transfer> kept_;
  std::unique_ptr<TransferExecutor> inside_;
};

}  // namespace cairn::testing
