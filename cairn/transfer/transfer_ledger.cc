#include "cairn/transfer/transfer_ledger.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <tuple>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

std::string hex(Checksum checksum) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  auto value = static_cast<std::uint64_t>(checksum);
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, value >>= 4) {
    *digit = kDigits[value & 15];
  }
  return text;
}

}  // namespace

bool ActiveTransfer::begin(std::uint32_t block) { return ledger_->begin_run(*this, block, 1) == 1; }

std::uint32_t ActiveTransfer::begin_run(std::uint32_t first, std::uint32_t count) {
  return ledger_->begin_run(*this, first, count);
}

void ActiveTransfer::finish(std::uint32_t block, const BlockSums& sums) {
  BlockOutcome outcome;
  std::string error;
  if (transfer_.verify != Verify::kOff) {
    const TransferBlock& given = transfer_.blocks[block];
    outcome.sums = sums;
    outcome.checksum = cairn::finish(sums, transfer_.plan->whole_block_bytes(), given.tag);
    if (transfer_.verify == Verify::kCheck && outcome.checksum != given.expected) {
      outcome.state = BlockState::kMismatch;
      error = str_cat("its checksum is ", hex(outcome.checksum), " and should be ", hex(given.expected),
                      "; what was read is not what was written under this key");
    }
  }
  ledger_->end_block(*this, block, outcome, error);
}

void ActiveTransfer::fail(std::uint32_t block, const std::string& error) {
  ledger_->end_block(*this, block, {.state = BlockState::kFailed}, error);
}

void ActiveTransfer::pass_on(std::uint32_t block, const BlockOutcome& outcome, const std::string& error) {
  ledger_->end_block(*this, block, outcome, error);
}

void ActiveTransfer::set_copied(Duration took) { ledger_->set_copied(*this, took); }

void ActiveTransfer::report_early(std::uint32_t first, std::span<const BlockOutcome> outcomes,
                                  const std::string& error) {
  ledger_->report_early(*this, first, outcomes, error);
}

void ActiveTransfer::release(std::uint32_t first, std::uint32_t count) { ledger_->release(*this, first, count); }

void TransferLedger::CallQueue::push(Call& call, const std::shared_ptr<ActiveTransfer>& transfer) noexcept {
  call.transfer = transfer;
  (last_ != nullptr ? last_->next : first_) = &call;
  last_ = &call;
  ++size_;
}

std::pair<std::shared_ptr<ActiveTransfer>, TransferLedger::Event> TransferLedger::CallQueue::pop() noexcept {
  Call& call = *first_;
  first_ = std::exchange(call.next, nullptr);
  last_ = first_ != nullptr ? last_ : nullptr;
  --size_;
  return {std::move(call.transfer), call.event};
}

TransferLedger::TransferLedger(const Clock& clock, std::size_t limit, Callbacks callbacks)
    : clock_(clock), limit_(limit), callbacks_(callbacks) {
  CAIRN_CHECK(limit > 0, "a ledger has room for at least one transfer");
  if (callbacks_ == Callbacks::kOwnThread) {
    thread_ = start_own_thread("cairn-ledger", [this] { serve(); });
  }
}

TransferLedger::~TransferLedger() {
  close();
  if (callbacks_ == Callbacks::kOnRequest) {
    while (run_callbacks()) {
    }
    const MutexLock lock(mutex_);
    CAIRN_CHECK(open_.empty(), "what has begun has ended before its ledger ends");
    return;
  }
  CAIRN_CHECK(std::this_thread::get_id() != thread_.get_id(), "no callback destroys the executor that runs it");
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    news_.notify_one();
  }
  thread_.join();
}

Status TransferLedger::check(const Transfer& transfer) const {
  if (transfer.plan == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "the transfer has no plan; make one with CopyPlan::make()");
  }
  if (!transfer.done) {
    return fail(ErrorCode::kInvalidArgument, "the transfer has no `done` callback; set one");
  }
  if (transfer.verify == Verify::kCheck && !transfer.plan->is_whole()) {
    return fail(
        ErrorCode::kInvalidArgument,
        str_cat("the plan moves ", transfer.plan->bytes_per_block(), " of the ", transfer.plan->whole_block_bytes(),
                " bytes of a block, and a checksum is of all; use Verify::kMake and add up the sums of the parts"));
  }
  std::vector<BlockPair> pairs(transfer.blocks.size());
  std::transform(transfer.blocks.begin(), transfer.blocks.end(), pairs.begin(),
                 [](const TransferBlock& block) { return block.pair; });
  if (Status blocks = transfer.plan->check(pairs); !blocks) {
    return fail(ErrorCode::kInvalidArgument, blocks.error().message);
  }
  return {};
}

Status TransferLedger::check_room() const {
  if (closed_) {
    return fail(ErrorCode::kFailedPrecondition, "the executor is closing and accepts nothing more");
  }
  if (open_.size() >= limit_) {
    return fail(ErrorCode::kExhausted,
                str_cat("all ", limit_, " places for transfers are taken; try again when one of them is done"));
  }
  return {};
}

Result<TransferId> TransferLedger::accept(Transfer&& transfer) {
  {
    const MutexLock lock(mutex_);
    CAIRN_TRY(check_room());
  }
  CAIRN_TRY(check(transfer));
  auto active = std::make_shared<ActiveTransfer>();
  const std::size_t blocks = transfer.blocks.size();
  active->ledger_ = this;
  active->phases_.assign(blocks, Phase::kWaiting);
  active->waiting_ = blocks;
  active->outcome_.blocks.resize(blocks);

  const MutexLock lock(mutex_);
  CAIRN_TRY(check_room());
  const TransferId id{next_id_++};
  active->id_ = id;
  active->transfer_ = std::move(transfer);
  const auto place = open_.emplace(id, active).first;
  try {
    if (blocks > 0 && active->transfer_.deadline != TimePoint::max()) {
      deadlines_.emplace(active->transfer_.deadline, id);
    }
  } catch (const std::bad_alloc&) {
    open_.erase(place);  // `active` goes after the lock: what the transfer holds may take locks of others
    throw;
  }
  open_blocks_ += blocks;
  if (blocks == 0) {
    report(*active);
  } else if (!expire_if_late(*active)) {
    if (!deadlines_.empty() && deadlines_.begin()->second == id) {
      news_.notify_one();
    }
    untaken_.notify_one();
  }
  return id;
}

std::shared_ptr<ActiveTransfer> TransferLedger::next_untaken() {
  for (auto next = open_.lower_bound(TransferId{next_taken_}); next != open_.end(); ++next) {
    next_taken_ = static_cast<std::uint64_t>(next->first) + 1;
    if (next->second->waiting_ > 0 && !expire_if_late(*next->second)) {
      return next->second;
    }
  }
  return nullptr;
}

std::shared_ptr<ActiveTransfer> TransferLedger::take() {
  const MutexLock lock(mutex_);
  while (true) {
    if (auto next = next_untaken(); next != nullptr || closed_) {
      return next;
    }
    untaken_.wait(mutex_);
  }
}

std::shared_ptr<ActiveTransfer> TransferLedger::try_take() {
  const MutexLock lock(mutex_);
  return next_untaken();
}

bool TransferLedger::has_untaken() const {
  const MutexLock lock(mutex_);
  return std::any_of(open_.lower_bound(TransferId{next_taken_}), open_.end(),
                     [](const auto& entry) { return entry.second->waiting_ > 0; });
}

std::uint32_t TransferLedger::begin_run(ActiveTransfer& transfer, std::uint32_t first, std::uint32_t count) {
  CAIRN_DCHECK(std::size_t{first} + count <= transfer.phases_.size(), "only blocks of the transfer begin");
  const MutexLock lock(mutex_);
  if (expire_if_late(transfer)) {
    return 0;
  }
  std::uint32_t begun = 0;
  for (; begun < count && transfer.phases_[first + begun] != Phase::kOver; ++begun) {
    CAIRN_CHECK(transfer.phases_[first + begun] == Phase::kWaiting, "a block of a transfer begins once");
    transfer.phases_[first + begun] = Phase::kBegun;
  }
  transfer.waiting_ -= begun;
  transfer.in_flight_ += begun;
  return begun;
}

void TransferLedger::end_block(ActiveTransfer& transfer, std::uint32_t block, const BlockOutcome& outcome,
                               const std::string& error) {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(transfer.phases_[block] == Phase::kBegun, "a block ends once, after it began");
  transfer.phases_[block] = Phase::kOver;
  --transfer.in_flight_;
  if (!transfer.done_is_due_) {
    resolve(transfer, block, outcome, error);
  }
  report(transfer);
}

void TransferLedger::set_copied(ActiveTransfer& transfer, Duration took) {
  const MutexLock lock(mutex_);
  if (!transfer.done_is_due_) {
    transfer.outcome_.copied = took;
  }
}

void TransferLedger::report_early(ActiveTransfer& transfer, std::uint32_t first, std::span<const BlockOutcome> outcomes,
                                  const std::string& error) {
  CAIRN_DCHECK(first + outcomes.size() <= transfer.phases_.size(), "only blocks of the transfer have outcomes");
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    CAIRN_CHECK(transfer.phases_[first + i] == Phase::kBegun,
                "report_early() is called once for a block, after it began");
    transfer.phases_[first + i] = Phase::kReported;
    if (!transfer.done_is_due_) {
      resolve(transfer, first + i, outcomes[i], error);
    }
  }
  transfer.reported_ += outcomes.size();
  report(transfer);
}

void TransferLedger::release(ActiveTransfer& transfer, std::uint32_t first, std::uint32_t count) {
  CAIRN_DCHECK(std::size_t{first} + count <= transfer.phases_.size(), "only blocks of the transfer are released");
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) {
    CAIRN_CHECK(transfer.phases_[first + i] == Phase::kReported, "a block is released once, after report_early()");
    transfer.phases_[first + i] = Phase::kOver;
  }
  transfer.reported_ -= count;
  transfer.in_flight_ -= count;
  report(transfer);
}

void TransferLedger::resolve(ActiveTransfer& transfer, std::size_t block, const BlockOutcome& outcome,
                             std::string_view error) noexcept {
  transfer.outcome_.blocks[block] = outcome;
  if (outcome.state == BlockState::kDone || (!transfer.outcome_.error.empty() && transfer.error_block_ < block)) {
    return;
  }
  const BlockPair& pair = transfer.transfer_.blocks[block].pair;
  transfer.error_block_ = block;
  try {
    transfer.outcome_.error = str_cat("block ", block, " of ", transfer.phases_.size(), " (", pair.source, " to ",
                                      pair.destination, ") ", to_string(outcome.state), ": ", error);
  } catch (const std::bad_alloc&) {
    transfer.outcome_.error = "no memory";  // so short that it needs none
  }
}

void TransferLedger::cancel_waiting(ActiveTransfer& transfer) noexcept {
  for (std::size_t block = 0; transfer.waiting_ > 0; ++block) {
    if (transfer.phases_[block] == Phase::kWaiting) {
      transfer.phases_[block] = Phase::kOver;
      --transfer.waiting_;
      resolve(transfer, block, {.state = BlockState::kCancelled}, "it was taken back before its copy began");
    }
  }
  report(transfer);
}

void TransferLedger::expire(ActiveTransfer& transfer) noexcept {
  for (std::size_t block = 0; block < transfer.phases_.size(); ++block) {
    if (transfer.phases_[block] == Phase::kOver || transfer.phases_[block] == Phase::kReported) {
      continue;
    }
    const bool begun = transfer.phases_[block] == Phase::kBegun;
    resolve(transfer, block, {.state = BlockState::kExpired},
            begun ? "the deadline passed during its copy, which may still write"
                  : "the deadline passed before its copy began");
    if (!begun) {
      transfer.phases_[block] = Phase::kOver;
    }
  }
  transfer.waiting_ = 0;
  transfer.done_is_due_ = true;
  deadlines_.erase({transfer.transfer_.deadline, transfer.id_});
  due_.push(transfer.done_call_, open_.at(transfer.id_));
  news_.notify_one();
  report(transfer);
}

bool TransferLedger::expire_if_late(ActiveTransfer& transfer) {
  const TimePoint deadline = transfer.transfer_.deadline;
  if (transfer.done_is_due_ || deadline == TimePoint::max() || clock_.now() < deadline) {
    return false;
  }
  expire(transfer);
  return true;
}

void TransferLedger::report(ActiveTransfer& transfer) noexcept {
  if (transfer.waiting_ + transfer.in_flight_ > transfer.reported_) {
    return;
  }
  const std::shared_ptr<ActiveTransfer>& shared = open_.at(transfer.id_);
  if (!transfer.done_is_due_) {
    transfer.done_is_due_ = true;
    deadlines_.erase({transfer.transfer_.deadline, transfer.id_});
    due_.push(transfer.done_call_, shared);
  }
  if (transfer.in_flight_ == 0) {
    due_.push(transfer.settled_call_, shared);
  }
  news_.notify_one();
}

void TransferLedger::cancel(TransferId transfer) {
  const MutexLock lock(mutex_);
  const auto found = open_.find(transfer);
  if (found != open_.end() && found->second->waiting_ > 0) {
    cancel_waiting(*found->second);
  }
}

void TransferLedger::check_deadlines() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expire(*open_.at(deadlines_.begin()->second));
  }
}

void TransferLedger::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& [id, transfer] : open_) {
    if (transfer->waiting_ > 0) {
      cancel_waiting(*transfer);
    }
  }
  untaken_.notify_all();
}

bool TransferLedger::run_next_callback() {
  std::shared_ptr<ActiveTransfer> transfer;
  Event event{};
  {
    const MutexLock lock(mutex_);
    if (due_.size() == 0) {
      return false;
    }
    std::tie(transfer, event) = due_.pop();
    if (transfer->in_flight_ == 0 && open_.erase(transfer->id_) > 0) {
      open_blocks_ -= transfer->phases_.size();
    }
  }
  // Moved out, so that what they hold is released with the call, however long somebody holds the transfer.
  if (event == Event::kDone) {
    std::exchange(transfer->transfer_.done, nullptr)(std::move(transfer->outcome_));
  } else if (const auto settled = std::exchange(transfer->transfer_.settled, nullptr)) {
    settled();
  }
  return true;
}

bool TransferLedger::run_callbacks() {
  CAIRN_CHECK(callbacks_ == Callbacks::kOnRequest, "callbacks are run by the ledger's own thread");
  std::size_t due = 0;
  {
    const MutexLock lock(mutex_);
    due = due_.size();
  }
  // What becomes due by them waits for the next call: a callback that submits cannot keep this one from returning.
  for (std::size_t ran = 0; ran < due; ++ran) {
    run_next_callback();
  }
  return due > 0;
}

ExecutorLoad TransferLedger::load() const {
  const MutexLock lock(mutex_);
  return {.transfers = open_.size(), .blocks = open_blocks_, .limit = limit_};
}

void TransferLedger::serve() {
  const bool on_time = &clock_ == &steady_clock();
  while (true) {
    while (run_next_callback()) {
    }
    if (on_time) {
      check_deadlines();
    }
    const MutexLock lock(mutex_);
    if (due_.size() > 0) {
      continue;
    }
    if (ending_ && open_.empty()) {
      return;
    }
    if (on_time && !deadlines_.empty()) {
      news_.wait_until(mutex_, std::chrono::steady_clock::time_point(deadlines_.begin()->first));
    } else {
      news_.wait(mutex_);
    }
  }
}

}  // namespace cairn
