// RankExecutor: a TransferExecutor whose copies are carried out by ranks. RankGroup::make_executor() makes it.
//
// Does:     keeps the ledger; the leader asks the ranks. A copy has begun when it was sent.
// Owner:    whoever made it; ends before the group. One at a time. Threads: any.
// Ends:     cancels, waits for the ranks as long as the configuration's shutdown, then gives up on those that do not
//           answer: they are thrown out and come back when they have nothing in hand.
#pragma once

#include <memory>
#include <string>

#include "cairn/ranks/rank_leader.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class RankExecutor final : public TransferExecutor {
 public:
  explicit RankExecutor(std::shared_ptr<RankLeader> leader);
  ~RankExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  const std::shared_ptr<RankLeader> leader_;
  TransferLedger ledger_;
};

}  // namespace cairn
