#include "cairn/leader/leader_executor.h"

#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

LeaderExecutor::LeaderExecutor(std::shared_ptr<LeaderThread> thread)
    : thread_(std::move(thread)), ledger_(*thread_->options().clock, thread_->options().transfers) {
  thread_->take_executor();
}

LeaderExecutor::~LeaderExecutor() {
  ledger_.close();
  thread_->end_executor();
}

Result<TransferId> LeaderExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("ranks move whole blocks between device, pinned and file memory, not from ",
                        to_string(transfer.plan->source().kind()), " to ",
                        to_string(transfer.plan->destination().kind()), " or parts of them"));
  }
  return thread_->submit(ledger_, std::move(transfer));
}

void LeaderExecutor::cancel(TransferId transfer) { thread_->cancel(ledger_, transfer); }

void LeaderExecutor::check_deadlines() {
  ledger_.check_deadlines();
  thread_->poke();
}

bool LeaderExecutor::can_move(const CopyPlan& plan) const { return route_of(plan).has_value(); }

ExecutorLoad LeaderExecutor::load() const { return ledger_.load(); }

std::string LeaderExecutor::describe() const { return str_cat("copies by ", thread_->options().ranks.to_string()); }

}  // namespace cairn
