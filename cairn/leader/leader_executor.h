// LeaderExecutor: a TransferExecutor whose transfers are carried out by ranks. Leader::make_executor() makes it.
//
// It keeps the ledger of transfers; the leader's thread sends them to the ranks. A transfer has begun when it was sent.
// The destructor cancels all transfers and waits for the ranks, at most config.shutdown. Ranks that have not answered by then
// are disconnected; they come back when their transfers have ended.
//
// Thread safety: any thread may call.
// Ownership:     its owner destroys it before the leader. Only one exists at a time.
#pragma once

#include <memory>
#include <string>

#include "cairn/leader/leader_thread.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class LeaderExecutor final : public TransferExecutor {
 public:
  explicit LeaderExecutor(std::shared_ptr<LeaderThread> thread);
  ~LeaderExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool holds_back() const override { return true; }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  const std::shared_ptr<LeaderThread> thread_;
  TransferLedger ledger_;
};

}  // namespace cairn
