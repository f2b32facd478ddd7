// OffloadEdge::Impl: batches of blocks, from the queue and of victims, until their copies have landed.
#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/offload/offload_impl.h"

namespace cairn {

namespace {

// For an executor that others have filled: nobody tells this edge when it has room again.
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);

std::optional<OffloadRefusal> refusal_of(BlockState state) {
  switch (state) {
    case BlockState::kDone:
      return std::nullopt;
    case BlockState::kCancelled:
      return OffloadRefusal::kCancelled;
    case BlockState::kFailed:
    case BlockState::kMismatch:
    case BlockState::kExpired:
      break;
  }
  return OffloadRefusal::kFailed;
}

}  // namespace

bool OffloadEdge::Impl::begin_waiting(TimePoint now) {
  if (queue_.empty() || is_busy()) {
    return false;
  }
  if (!link_.may_be_tried()) {
    drop_waiting(OffloadRefusal::kTierOut);
    return true;
  }
  std::vector<BlockKey> keys = sift(queue_.first(options_.batch), now);
  if (keys.empty()) {
    return true;
  }
  std::optional<MutableBlocks> targets = allocate_below(static_cast<std::uint32_t>(keys.size()));
  if (!targets && batches_ > 0) {
    return false;  // there may be room when those have landed
  }
  if (!targets) {
    for (const BlockKey& key : keys) {
      resolve(key, OffloadRefusal::kNoRoom);
    }
    return true;
  }
  keys.resize(targets->size());
  std::optional<CopySource> source = source_of(keys);
  if (!source) {
    return true;
  }
  MutableBlocks fitting = targets->take_front(static_cast<std::uint32_t>(keys.size()));
  targets.reset();
  const Status status = bring(*std::move(source), std::move(fitting), {.keys = keys}, now);
  return status || !waits(status.error(), keys, now);
}

// Those of the waiting keys that are to be copied still.
std::vector<BlockKey> OffloadEdge::Impl::sift(std::vector<BlockKey> keys, TimePoint now) {
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) {
    KeyState& state = keys_.at(key);
    if (is_below(key)) {
      resolve(key, OffloadRefusal::kAlreadyBelow);
      return true;
    }
    if (upper_ != nullptr && !upper_->contains(key)) {
      resolve(key, OffloadRefusal::kGone);  // before room is made for it at the cost of another
      return true;
    }
    state.is_admitted = state.is_admitted || filter_.demand(key, now) == Admission::kAdmitted;
    if (!state.is_admitted) {
      resolve(key, OffloadRefusal::kOverBudget);
      return true;
    }
    return false;
  });
  return keys;
}

// The blocks of these keys, in order; keys that have none are gone from the list. None where no key has one.
std::optional<CopySource> OffloadEdge::Impl::source_of(std::vector<BlockKey>& keys) {
  if (upper_ == nullptr) {
    return engine_source(keys);
  }
  CopySource source(upper_->hold(keys));
  std::size_t found = 0;
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) {
    if (found < source.size() && source.facts()[found].block.key == key) {
      ++found;
      return false;
    }
    resolve(key, OffloadRefusal::kGone);
    return true;
  });
  return keys.empty() ? std::optional<CopySource>() : std::move(source);
}

CopySource OffloadEdge::Impl::engine_source(std::span<const BlockKey> keys) const {
  EngineBlocks blocks;
  const auto held = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const BlockKey& key : keys) {
    // Only requests name the engine's blocks: somebody asked for this one, or it would not wait.
    const Asker asker = keys_.at(key).askers.front();
    const EngineBlocks& source = requests_.find(asker.request)->source;
    blocks.slots.push_back(source.slots[asker.index]);
    blocks.facts.push_back(source.facts[asker.index]);
    if (held->empty() || held->back() != source.held) {
      held->push_back(source.held);
    }
  }
  blocks.held = held;
  return {std::move(blocks)};
}

bool OffloadEdge::Impl::begin_ahead(std::uint32_t& wanted, TimePoint now) {
  bool did = false;
  if (!pending_) {
    if (wanted == 0 || !claim(wanted, now)) {
      return false;
    }
    did = true;
  }
  if (!pending_ || is_busy()) {
    return did;
  }
  return begin_pending(now) || did;
}

// One batch of victims: those that need no copy are ready at once, the others are pending.
bool OffloadEdge::Impl::claim(std::uint32_t& wanted, TimePoint now) {
  // In steps: an allocation waits no longer than one of them takes.
  constexpr std::uint32_t kStep = 8;
  ImmutableBlocks victims;
  for (std::uint32_t left = std::min(wanted, options_.batch); left > 0;) {
    const std::uint32_t asked = std::min(left, kStep);
    ImmutableBlocks some = upper_->claim_victims(asked);
    left = some.size() == asked ? left - asked : 0;
    CAIRN_CHECK(victims.append(std::move(some)).has_value(), "victims of one pool can be joined");
  }
  if (victims.empty()) {
    wanted = 0;
    return false;
  }
  wanted -= std::min(wanted, victims.size());
  offered_ += victims.size();
  const std::vector<BlockFacts> facts = victims.facts();
  const bool open = link_.may_be_tried();
  std::vector<bool> is_ready(facts.size());
  std::vector<BlockFacts> copied;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (const Reason reason = judge(facts[i], open, now)) {
      refuse(*reason);
      is_ready[i] = true;
      continue;
    }
    copied.push_back(facts[i]);
    const BlockKey& key = facts[i].block.key;
    if (queue_.erase(key)) {
      refuse(OffloadRefusal::kUnderWay);  // it was offered twice, and is copied once
    }
    KeyState& state = keys_[key];
    state.phase = Phase::kClaimed;
    state.is_admitted = true;
  }
  victims.release_as_victims(is_ready);
  if (!copied.empty()) {
    pending_ = {std::make_shared<VictimClaim>(std::move(victims), claimed_, wake_), std::move(copied)};
  }
  return true;
}

bool OffloadEdge::Impl::begin_pending(TimePoint now) {
  if (!link_.may_be_tried()) {
    drop_pending(OffloadRefusal::kTierOut);
    return true;
  }
  std::optional<MutableBlocks> targets = allocate_below(static_cast<std::uint32_t>(pending_->facts.size()));
  if (!targets) {
    drop_pending(OffloadRefusal::kNoRoom);
    return true;
  }
  if (targets->size() < pending_->facts.size()) {
    pending_->claim->keep_first(targets->size());
    for (; pending_->facts.size() > targets->size(); pending_->facts.pop_back()) {
      resolve(pending_->facts.back().block.key, OffloadRefusal::kNoRoom);
    }
  }
  Batch batch{.keys = {}, .claim = pending_->claim};
  for (const BlockFacts& facts : pending_->facts) {
    batch.keys.push_back(facts.block.key);
  }
  const std::span<const SlotId> slots = pending_->claim->slots();
  const std::vector<BlockKey> keys = batch.keys;
  // The claim, not a pin: what was pinned when it is let go of would enter the policy anew.
  EngineBlocks source{.slots = {slots.begin(), slots.end()}, .facts = pending_->facts, .held = pending_->claim};
  const Status status = bring(std::move(source), *std::move(targets), std::move(batch), now);
  if (status) {
    pending_->claim->begun();
    pending_.reset();
    return true;
  }
  if (waits(status.error(), keys, now)) {
    return false;
  }
  pending_.reset();
  return true;
}

// As many as there is room for, at most `count`.
std::optional<MutableBlocks> OffloadEdge::Impl::allocate_below(std::uint32_t count) {
  if (Result<MutableBlocks> blocks = lower_.allocate(count)) {
    return *std::move(blocks);
  }
  for (count = std::min(count - 1, lower_.counts().available()); count > 0; count /= 2) {
    if (Result<MutableBlocks> fewer = lower_.allocate(count)) {
      return *std::move(fewer);
    }
  }
  return std::nullopt;
}

Status OffloadEdge::Impl::bring(CopySource source, MutableBlocks targets, Batch batch, TimePoint now) {
  batch.epoch = epoch_;
  const auto shared = std::make_shared<const Batch>(std::move(batch));
  const auto begun =
      link_.bring({.source = std::move(source),
                   .targets = std::move(targets),
                   .deadline = now + options_.deadline,
                   .done = [this, shared](TierLink::Arrived&& arrived) { landed(*shared, std::move(arrived)); }});
  if (!begun) {
    return Unexpected(Error(begun.error().error));
  }
  for (const BlockKey& key : shared->keys) {
    queue_.erase(key);
    keys_.at(key).phase = Phase::kUnderWay;
  }
  full_since_.reset();
  ++batches_;
  under_way_ += static_cast<std::uint32_t>(shared->keys.size());
  return {};
}

bool OffloadEdge::Impl::waits(const Error& error, std::span<const BlockKey> keys, TimePoint now) {
  if (error.code == ErrorCode::kExhausted) {
    is_full_ = true;
    full_since_ = full_since_.value_or(now);
    retry_at_ = now + kRetryAfter;
    return true;
  }
  for (const BlockKey& key : keys) {
    resolve(key, error.code == ErrorCode::kUnavailable ? OffloadRefusal::kTierOut : OffloadRefusal::kFailed,
            error.message);
  }
  return false;
}

void OffloadEdge::Impl::landed(const Batch& batch, TierLink::Arrived&& arrived) {
  arrived.blocks = {};  // others may evict them from now on
  Answers answers;
  {
    const MutexLock lock(mutex_);
    if (batch.epoch == epoch_) {
      for (std::size_t i = 0; i < batch.keys.size(); ++i) {
        resolve(batch.keys[i], refusal_of(arrived.states[i]), arrived.error);
      }
      under_way_ -= static_cast<std::uint32_t>(batch.keys.size());
    }
    --batches_;
    is_full_ = false;
    full_since_.reset();
    answers = requests_.take_answers();
  }
  if (std::ranges::find(arrived.states, BlockState::kExpired) != arrived.states.end()) {
    if (const std::shared_ptr<VictimClaim> claim = batch.claim.lock()) {
      claim->uncount();
    }
  }
  deliver(std::move(answers));
  wake_();
}

}  // namespace cairn
