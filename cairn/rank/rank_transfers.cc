#include "cairn/rank/rank_transfers.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <unordered_set>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Layers of one transfer that are in flight at once, if they are in more than two parts: enough to keep an executor busy while
// a part is reported and the next one is submitted, few enough for the first layers of other transfers to come before the
// last layers of this one.
constexpr std::uint32_t kLayersAhead = 4;

constexpr const char* kLate = "its deadline passed before it began";
constexpr const char* kEventFailed = "a device event before it has failed; nobody knows what the device has computed";

}  // namespace

RankTransfers::RankTransfers(std::uint32_t model_layers, const Clock& clock, Send send)
    : clock_(clock),
      send_(std::move(send)),
      watch_(model_layers),
      thread_(start_own_thread("cairn-rank-step", [this] { wait_for_steps(); })) {}

RankTransfers::~RankTransfers() {
  lose();
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    steps_.notify_one();
  }
  gate_.wake();
  thread_.join();
  routes_.reset();  // ends the executors, which call back
}

// --- the leader ---

void RankTransfers::use(std::unique_ptr<RankRoutes> routes) {
  CAIRN_CHECK(is_quiet(), "no transfer uses the routes when they change");
  {
    const MutexLock lock(mutex_);
    std::swap(routes_, routes);
    if (routes_ != nullptr) {
      fences_.resize(routes_->device_blocks());  // fences stay: the blocks are the engine's, under any leader
    }
  }
  // The old routes end here, without the lock.
}

void RankTransfers::begin(std::uint32_t generation, const LeaderId& leader) {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(open_.empty(), "the transfers of one generation have ended before the next begins");
  generation_ = generation;
  joined_ = leader;
  if (!followed_) {
    followed_ = leader;
  }
}

void RankTransfers::submit(const RankTransfer& transfer) {
  {
    const MutexLock lock(mutex_);
    const TimePoint deadline =
        transfer.time_left == Duration::max() ? TimePoint::max() : deadline_after(clock_.now(), transfer.time_left);
    take(std::make_shared<Active>(transfer, joined_, generation_, deadline));
  }
  flush();
}

void RankTransfers::cancel(TransferId transfer) {
  {
    const MutexLock lock(mutex_);
    const auto found = open_.find(transfer);
    if (found == open_.end() || found->second->is_reported()) {
      return;
    }
    const ActivePtr active = found->second;
    if (active->has_parts_left() || active->parts_in_flight() == 0) {
      drop(active, BlockState::kCancelled, "it was cancelled");  // it can no longer become whole, or waits for its step
    } else {
      active->cancel_parts();
    }
  }
  flush();
}

void RankTransfers::lose() {
  const MutexLock lock(mutex_);
  generation_ = 0;
  outbox_.clear();
  const std::map<TransferId, ActivePtr> open = open_;
  for (const auto& [id, active] : open) {
    drop(active, BlockState::kCancelled, "the leader is gone");
  }
  watch_.fail_all();
  news_.notify_all();
  // A message that is being sent must not reach the next leader, whose generation may have the same number.
  while (is_flushing_) {
    news_.wait(mutex_);
  }
}

bool RankTransfers::is_quiet() const {
  const MutexLock lock(mutex_);
  return open_.empty();
}

bool RankTransfers::wait_until_quiet(TimePoint deadline) {
  const MutexLock lock(mutex_);
  static_cast<void>(wait_until(deadline, [this]() CAIRN_REQUIRES(mutex_) { return open_.empty() || is_woken_; }));
  is_woken_ = false;
  return open_.empty();
}

void RankTransfers::wake() {
  const MutexLock lock(mutex_);
  is_woken_ = true;
  news_.notify_all();
}

void RankTransfers::check_deadlines() {
  {
    const MutexLock lock(mutex_);
    expire_late();
  }
  if (routes_ != nullptr) {
    routes_->check_deadlines();
  }
  flush();
}

template <typename IsOver>
bool RankTransfers::wait_until(TimePoint deadline, IsOver is_over) {
  while (!is_over()) {
    const TimePoint now = clock_.now();
    if (now >= deadline) {
      return false;
    }
    // At most a day: some libraries add the duration to a time and overflow.
    news_.wait_for(mutex_, std::min<Duration>(deadline - now, std::chrono::hours(24)));
  }
  return true;
}

// --- the engine ---

bool RankTransfers::follow(const LeaderId& leader, TimePoint deadline) {
  {
    const MutexLock lock(mutex_);
    if (followed_ != leader) {
      followed_ = leader;
      gate_.reset();
      std::ranges::fill(fences_, StepMark());
      watch_.expect({});
      const std::map<TransferId, ActivePtr> open = open_;
      for (const auto& [id, active] : open) {
        if (is_of_other_leader(*active) && active->touches_device()) {
          drop(active, BlockState::kFailed, "the engine follows another leader");
        }
      }
      news_.notify_all();
      gate_.wake();  // transfers of this leader may be held
    }
  }
  flush();
  const MutexLock lock(mutex_);
  return wait_until(deadline, [this]() CAIRN_REQUIRES(mutex_) {
    return std::ranges::none_of(open_, [this](const auto& entry) CAIRN_REQUIRES(mutex_) {
      return is_of_other_leader(*entry.second) && entry.second->touches_device() && !entry.second->is_settled();
    });
  });
}

void RankTransfers::expect(std::span<const BlockId> device_blocks) {
  const MutexLock lock(mutex_);
  watch_.expect(device_blocks);
  if (generation_ == 0 || joined_ != followed_) {
    watch_.fail_all();
  }
}

Status RankTransfers::wait_for_layer(std::uint32_t model_layer, TimePoint deadline) {
  const MutexLock lock(mutex_);
  if (model_layer >= watch_.layers()) {
    return cairn::fail(ErrorCode::kOutOfRange,
                       str_cat("layer ", model_layer, " of a model with ", watch_.layers(), " layers"));
  }
  const bool in_time =
      wait_until(deadline, [this, model_layer]() CAIRN_REQUIRES(mutex_) { return watch_.has_come(model_layer); });
  if (!in_time) {
    return cairn::fail(ErrorCode::kExpired,
                       str_cat("layer ", model_layer, " of the expected blocks has not come in time"));
  }
  if (watch_.is_lost(model_layer)) {
    return cairn::fail(ErrorCode::kUnavailable, "some of the expected blocks will not come; compute them");
  }
  return {};
}

std::vector<BlockId> RankTransfers::lacking(std::uint32_t model_layer) const {
  const MutexLock lock(mutex_);
  return model_layer < watch_.layers() ? watch_.lacking(model_layer) : std::vector<BlockId>();
}

void RankTransfers::pass_over(std::span<const BlockId> device_blocks) {
  const MutexLock lock(mutex_);
  for (const BlockId block : device_blocks) {
    watch_.fail(index_of(block));
  }
  news_.notify_all();
}

bool RankTransfers::fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline) {
  std::unordered_set<std::uint32_t> fenced;
  for (const BlockId block : device_blocks) {
    fenced.insert(index_of(block));
  }
  // A save of the old content that is not reported yet. Those of another leader have failed, or have not begun.
  const auto reads = [&](const Active& active, std::size_t i) CAIRN_REQUIRES(mutex_) {
    return !is_of_other_leader(active) && !active.is_reported() && active.is_save() && active.mark() < overwritten_in &&
           active.is_well(i) && fenced.contains(active.device_block(i));
  };
  // An old load that has begun: reported or not, it may still write.
  const auto writes = [&](const Active& active, std::size_t i) CAIRN_REQUIRES(mutex_) {
    return !active.is_settled() && active.is_load() && (is_of_other_leader(active) || active.mark() < overwritten_in) &&
           fenced.contains(active.device_block(i));
  };
  bool was_free = true;
  {
    const MutexLock lock(mutex_);
    const std::map<TransferId, ActivePtr> all = open_;
    // A save whose step is not computed yet is not waited for: the engine has given up that step, or is far ahead of its
    // device.
    for (const auto& [id, active] : all) {
      if (!active->is_in_step_save() || gate_.now() >= active->mark()) {
        continue;
      }
      for (std::size_t i = 0; i < active->blocks(); ++i) {
        if (reads(*active, i)) {
          fail(*active, i, BlockState::kCancelled,
               str_cat("device block ", active->device_block(i), " was given to another before it was computed"));
        }
      }
      report_if_over(active);
    }
    was_free = wait_until(deadline, [&]() CAIRN_REQUIRES(mutex_) {
      return std::ranges::none_of(open_, [&](const auto& entry) CAIRN_REQUIRES(mutex_) {
        const Active& active = *entry.second;
        const auto blocks = std::views::iota(std::size_t{0}, active.blocks());
        return std::ranges::any_of(
            blocks, [&](std::size_t i) CAIRN_REQUIRES(mutex_) { return reads(active, i) || writes(active, i); });
      });
    });
    // In one step under the lock: saves that are not over fail, and so do those that come later.
    const std::map<TransferId, ActivePtr> open = was_free ? std::map<TransferId, ActivePtr>() : open_;
    for (const auto& [id, active] : open) {
      for (std::size_t i = 0; i < active->blocks(); ++i) {
        if (reads(*active, i)) {
          fail(*active, i, BlockState::kFailed,
               str_cat("device block ", active->device_block(i), " was given to another while it was copied"));
        }
      }
      report_if_over(active);
    }
    for (const std::uint32_t block : fenced) {
      if (block < fences_.size()) {
        fences_[block] = std::max(fences_[block], overwritten_in);
      }
    }
  }
  flush();
  return was_free;
}

RankTransfers::Counts RankTransfers::counts() const {
  const MutexLock lock(mutex_);
  return {.transfers = static_cast<std::uint32_t>(open_.size()), .done = done_, .failed = failed_};
}

// --- from arrival to start ---

void RankTransfers::take(const ActivePtr& active) {
  const RankTransfer& message = active->message();
  if (generation_ == 0 || !open_.emplace(active->id(), active).second) {
    return;  // nobody to answer, or the id is in use, which the leader prevents
  }
  if (routes_ != nullptr) {
    active->use_whole(routes_->whole(message.from, message.to), routes_->memory().rank());
  }
  if (active->routes().empty() || message.tags.size() != message.pairs.size()) {
    give_up(*active, BlockState::kFailed,
            active->routes().empty()
                ? str_cat("no blocks go from ", to_string(message.from), " to ", to_string(message.to))
                : str_cat(message.tags.size(), " tags for ", message.pairs.size(), " blocks"));
    push(active);
    return;
  }
  cancel_fenced(*active);
  if (active->is_in_step_save() && !routes_->by_layer(message.from, message.to).empty()) {
    active->use_layers(routes_->by_layer(message.from, message.to));
  }
  if (gate_for(*active) == Gate::kHeld) {
    hold(active);
  } else {
    start(active);
  }
}

void RankTransfers::hold(const ActivePtr& active) {
  if (std::ranges::find(held_, active) == held_.end()) {
    held_.push_back(active);
    steps_.notify_one();
    gate_.wake();  // the thread may wait for a later mark
  }
}

RankTransfers::Gate RankTransfers::gate_for(const Active& active) {
  if (!active.touches_device()) {
    return Gate::kOpen;
  }
  if (is_of_other_leader(active)) {
    return Gate::kHeld;
  }
  const StepPoint point = active.next_point();
  if (point <= gate_.now()) {
    return Gate::kOpen;
  }
  return gate_.has_failed(point) ? Gate::kFailed : Gate::kHeld;
}

// Cancelled, not failed: nothing is wrong with the device.
void RankTransfers::cancel_fenced(Active& active) {
  if (!active.touches_device() || is_of_other_leader(active)) {
    return;
  }
  for (std::size_t i = 0; i < active.blocks(); ++i) {
    const std::uint32_t block = active.device_block(i);
    if (block < fences_.size() && active.mark() < fences_[block]) {
      fail(active, i, BlockState::kCancelled,
           str_cat("device block ", block, " was given to another before it was copied"));
    }
  }
}

// A rank that was started again does not have what the one before it computed.
bool RankTransfers::is_from_before(const Active& active) const {
  const std::optional<StepMark> first = gate_.first();
  return active.is_save() && first && active.mark() < *first;
}

void RankTransfers::start(const ActivePtr& active) {
  const RankTransfer& message = active->message();
  if (gate_for(*active) == Gate::kFailed) {
    give_up(*active, BlockState::kFailed, kEventFailed);
  }
  cancel_fenced(*active);  // the engine may follow its leader only now
  if (is_from_before(*active)) {
    give_up(*active, BlockState::kFailed, "it was computed before this rank took part in the engine's steps");
  }
  const auto is_expected = [this](const BlockPair& pair)
                               CAIRN_REQUIRES(mutex_) { return watch_.is_expected(pair.destination); };
  if (active->is_load() && active->has_parts_left() && !watch_.is_empty() &&
      std::ranges::any_of(message.pairs, is_expected)) {
    active->use_layers(routes_->by_layer(message.from, message.to));
  }
  if (active->is_in_step_save() && !active->has_begun() && gate_.now() >= active->mark()) {
    // It came after its step: in one go.
    active->use_whole(routes_->whole(message.from, message.to), routes_->memory().rank());
  }
  push(active);
}

void RankTransfers::start_held() {
  for (const ActivePtr& active : std::exchange(held_, {})) {
    if (gate_for(*active) == Gate::kHeld) {
      held_.push_back(active);
    } else {
      start(active);
    }
  }
}

void RankTransfers::wait_for_steps() {
  for (;;) {
    std::optional<StepPoint> next;  // the earliest that a transfer waits for
    Duration longest = Duration::max();
    {
      const MutexLock lock(mutex_);
      while (held_.empty() && stalled_.empty() && !is_ending_) {
        steps_.wait(mutex_);
      }
      if (is_ending_) {
        return;
      }
      TimePoint deadline = TimePoint::max();
      for (const ActivePtr& active : held_) {
        if (!is_of_other_leader(*active)) {
          next = std::min(next.value_or(active->next_point()), active->next_point());
        }
        deadline = std::min(deadline, active->deadline());
      }
      for (const ActivePtr& active : stalled_) {
        deadline = std::min(deadline, active->deadline());
      }
      longest = deadline == TimePoint::max() ? Duration::max() : std::max(deadline - clock_.now(), Duration(0));
    }
    gate_.wait_for(next, longest);
    {
      const MutexLock lock(mutex_);
      start_held();
      expire_late();
    }
    flush();
  }
}

void RankTransfers::expire_late() {
  const TimePoint now = clock_.now();
  for (std::deque<ActivePtr>* waiting : {&held_, &stalled_}) {
    for (const ActivePtr& active : std::exchange(*waiting, {})) {
      if (now < active->deadline()) {
        waiting->push_back(active);
      } else {
        give_up(*active, BlockState::kExpired, kLate);
        push(active);
      }
    }
  }
}

// --- from start to the outcome ---

bool RankTransfers::may_go_on(const ActivePtr& active) {
  if (!active->is_in_step_save()) {
    return true;
  }
  switch (gate_for(*active)) {
    case Gate::kOpen:
      return true;
    case Gate::kHeld:
      hold(active);
      break;
    case Gate::kFailed:
      give_up(*active, BlockState::kFailed, kEventFailed);
      break;
  }
  return false;
}

void RankTransfers::push(const ActivePtr& active) {
  if (active->is_reported()) {
    return;
  }
  while (active->has_parts_left() && active->may_begin_part(kLayersAhead) && may_go_on(active)) {
    if (!submit_part(active)) {
      if (std::ranges::find(stalled_, active) == stalled_.end()) {
        stalled_.push_back(active);
        steps_.notify_one();  // for its deadline
        gate_.wake();
      }
      break;
    }
  }
  report_if_over(active);
}

bool RankTransfers::submit_part(const ActivePtr& active) {
  const TimePoint now = clock_.now();
  if (now >= active->deadline()) {
    give_up(*active, BlockState::kExpired, kLate);
    return true;
  }
  Active::Part part = active->next_part();
  if (part.blocks.empty()) {
    active->skip_parts();
    return true;
  }
  TransferExecutor& executor = *active->routes()[part.route].executor;
  Transfer transfer = active->transfer_of(part);
  transfer.done = [this, active, part = std::move(part)](TransferOutcome&& outcome) {
    part_ended(active, part, outcome);
  };
  transfer.settled = [this, active] { part_settled(active); };
  const Result<TransferId> submitted = executor.submit(std::move(transfer));
  if (!submitted && submitted.error().code == ErrorCode::kExhausted) {
    return false;
  }
  if (submitted) {
    active->begun(*submitted, now);
  } else {
    give_up(*active, BlockState::kFailed, submitted.error().message);
  }
  return true;
}

void RankTransfers::push_stalled() {
  for (const ActivePtr& active : std::exchange(stalled_, {})) {
    push(active);
  }
}

void RankTransfers::give_up(Active& active, BlockState state, const std::string& error) {
  for (std::size_t i = 0; i < active.blocks(); ++i) {
    fail(active, i, state, error);
  }
  active.skip_parts();
}

void RankTransfers::fail(Active& active, std::size_t block, BlockState state, const std::string& error) {
  if (active.fail(block, state, error) && active.is_load()) {
    watch_.fail(active.device_block(block));
    news_.notify_all();
  }
}

// Ends a transfer early. Its parts in flight are cancelled, and waited for before it is settled.
void RankTransfers::drop(const ActivePtr& active, BlockState state, const std::string& error) {
  active->cancel_parts();
  std::erase(held_, active);
  std::erase(stalled_, active);
  if (!active->is_reported()) {
    give_up(*active, state, error);
    push(active);
  }
}

void RankTransfers::part_ended(const ActivePtr& active, const Active::Part& part, const TransferOutcome& outcome) {
  {
    const MutexLock lock(mutex_);
    active->ended(part, outcome, clock_.now());
    for (std::size_t i = 0; i < part.blocks.size(); ++i) {
      const std::uint32_t block = part.blocks[i];
      if (outcome.blocks[i].state != BlockState::kDone) {
        fail(*active, block, outcome.blocks[i].state, outcome.error);
      } else if (active->is_load() && active->is_by_layer() && active->is_well(block)) {
        const GroupRoute& route = active->routes()[part.route];
        watch_.layers_came(active->device_block(block), route.first_layer, route.layers);
      }
    }
    push(active);
    push_stalled();
    news_.notify_all();
  }
  flush();
}

void RankTransfers::part_settled(const ActivePtr& active) {
  {
    const MutexLock lock(mutex_);
    active->settled();
    end_if_settled(active);
    push_stalled();
  }
  flush();
}

void RankTransfers::report_if_over(const ActivePtr& active) {
  if (active->is_reported() || !active->has_outcome()) {
    return;
  }
  if (active->is_any_well() && !may_go_on(active) && active->is_any_well()) {
    return;  // its step is not computed yet
  }
  RankTransferOutcome outcome = active->report();
  for (std::size_t i = 0; i < active->blocks(); ++i) {
    ++(active->is_well(i) ? done_ : failed_);
    if (active->is_well(i) && active->is_load()) {
      watch_.all_came(active->device_block(i));
    }
  }
  queue(*active, std::move(outcome));
  news_.notify_all();
  end_if_settled(active);
}

void RankTransfers::end_if_settled(const ActivePtr& active) {
  if (!active->is_reported() || !active->is_settled()) {
    return;
  }
  queue(*active, RankSettled{.id = active->id()});
  open_.erase(active->id());
  news_.notify_all();
}

void RankTransfers::queue(const Active& active, RankMessage message) {
  if (active.generation() == generation_) {
    outbox_.emplace_back(active.generation(), std::move(message));
  }
}

void RankTransfers::flush() {
  std::deque<std::pair<std::uint32_t, RankMessage>> batch;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (batch.empty() && is_flushing_) {
        return;  // the thread that is sending takes these too
      }
      batch.clear();
      batch.swap(outbox_);
      is_flushing_ = !batch.empty();
      if (batch.empty()) {
        if (generation_ == 0) {
          news_.notify_all();  // lose() may wait
        }
        return;
      }
    }
    for (const auto& [generation, message] : batch) {
      send_(generation, message);
    }
  }
}

}  // namespace cairn
