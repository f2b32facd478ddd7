#include "cairn/ranks/rank_executor.h"

#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

RankExecutor::RankExecutor(std::shared_ptr<RankLeader> leader)
    : leader_(std::move(leader)), ledger_(*leader_->options().clock, leader_->options().transfers) {
  leader_->take_executor();
}

RankExecutor::~RankExecutor() {
  ledger_.close();
  leader_->end_executor();
}

Result<TransferId> RankExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("ranks move whole blocks between device, pinned and file memory, not from ",
                        to_string(transfer.plan->source().kind()), " to ",
                        to_string(transfer.plan->destination().kind()), " or parts of them"));
  }
  return leader_->submit(ledger_, std::move(transfer));
}

void RankExecutor::cancel(TransferId transfer) { leader_->cancel(ledger_, transfer); }

void RankExecutor::check_deadlines() {
  ledger_.check_deadlines();
  leader_->poke();
}

bool RankExecutor::can_move(const CopyPlan& plan) const { return route_of(plan).has_value(); }

ExecutorLoad RankExecutor::load() const { return ledger_.load(); }

std::string RankExecutor::describe() const {
  return str_cat("copies by ", leader_->options().ranks, leader_->options().ranks == 1 ? " rank" : " ranks");
}

}  // namespace cairn
