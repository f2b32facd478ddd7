// OffloadEdge::Impl: batches of blocks from the queue, until their copies have landed.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/offload/offload_impl.h"

namespace cairn {

namespace {

// For an executor that others have filled: nobody tells this edge when it has room again.
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);

std::optional<OffloadRefusal> why_not(BlockState state) {
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
  const std::size_t waiting = queue_.size();
  std::vector<BlockKey> keys = sift(next_keys(), now);
  if (keys.empty()) {
    return queue_.size() < waiting;  // if not, the copies that are to end first wake the edge
  }
  if (upper_ == nullptr) {
    keep_one_step(keys);
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
  const std::shared_ptr<CopyLoan> loan = upper_ != nullptr ? borrow(keys) : nullptr;
  if (keys.empty()) {
    return true;
  }
  CopySource source =
      loan == nullptr ? engine_source(keys) : CopySource(std::shared_ptr<const BorrowedBlocks>(loan, &loan->blocks()));
  MutableBlocks fitting = targets->take_front(static_cast<std::uint32_t>(keys.size()));
  targets.reset();
  const Status status = bring(std::move(source), std::move(fitting), {.keys = keys, .loan = loan}, now);
  if (status && loan != nullptr) {
    loan->begun();
  }
  return status || !waits(status.error(), keys, now);
}

// The next keys in the order of the queue; ahead of need each comes after those of its ancestors that wait too.
std::vector<BlockKey> OffloadEdge::Impl::next_keys() {
  std::vector<BlockKey> first = queue_.first(options_.batch);
  if (!is_ahead()) {
    return first;
  }
  std::vector<BlockKey> keys;
  std::unordered_set<BlockKey> taken;
  for (const BlockKey& key : first) {
    std::vector<BlockKey> path;
    for (std::optional<BlockKey> next = key; next && !taken.contains(*next);) {
      const auto found = keys_.find(*next);
      if (found == keys_.end() || found->second.phase != Phase::kWaiting) {
        break;
      }
      path.push_back(*next);
      if (next->position() == 0 || (!keys.empty() && keys.back().is_parent_of(*next))) {
        break;
      }
      const auto seen = upper_->peek({&*next, 1});
      next = seen[0] ? seen[0]->parent : std::nullopt;
    }
    for (; !path.empty() && keys.size() < options_.batch; path.pop_back()) {
      taken.insert(path.back());
      keys.push_back(path.back());
    }
  }
  return keys;
}

std::vector<BlockKey> OffloadEdge::Impl::sift(const std::vector<BlockKey>& keys, TimePoint now) {
  std::uint32_t free_room = is_ahead() ? free_room_below() : 0;
  const bool is_full = free_room == 0;
  Lendable lendable = is_ahead() ? may_lend() : Lendable();
  const std::vector<std::optional<PeekedBlock>> above =
      upper_ != nullptr ? upper_->peek(keys) : std::vector<std::optional<PeekedBlock>>(keys.size());
  std::vector<BlockKey> sifted;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const BlockKey& key = keys[i];
    KeyState& state = keys_.at(key);
    const bool needs_free_room = is_ahead() && !state.is_urgent && state.askers.empty();
    const bool is_unused = above[i].has_value() && !above[i]->in_use;
    Reason reason;
    if (is_below(key)) {
      reason = OffloadRefusal::kAlreadyBelow;
    } else if (upper_ != nullptr && !above[i]) {
      reason = OffloadRefusal::kGone;  // before room is made for it at the cost of another
    } else if (is_ahead() && state.askers.empty() && is_orphan(key)) {
      reason = OffloadRefusal::kNoParent;
    } else if (needs_free_room && free_room == 0) {
      reason = OffloadRefusal::kNoRoom;
      // While there is room it is looked for again only if copies get anywhere.
      (is_full ? missed_some_ : shed_some_) = true;
    } else if (is_ahead() && (lendable.blocks == 0 || (is_unused && lendable.unused == 0))) {
      continue;
    } else if (!state.is_admitted && filter_.demand(key, now) != Admission::kAdmitted) {
      reason = OffloadRefusal::kOverBudget;
    }
    if (reason) {
      resolve(key, reason);
      continue;
    }
    state.is_admitted = true;
    free_room -= needs_free_room ? 1 : 0;
    lendable.blocks -= is_ahead() ? 1 : 0;
    lendable.unused -= is_ahead() && is_unused ? 1 : 0;
    sifted.push_back(key);
  }
  return sifted;
}

// What the next batch may read ahead of need: it cannot be evicted meanwhile. All batches together leave room for an
// allocation as large as those of late, also if everything that they read is let go of; if there is no such room anyway,
// they leave most of what there is. A batch takes half, so that there can be two.
OffloadEdge::Impl::Lendable OffloadEdge::Impl::may_lend() const {
  const auto next = [](std::uint32_t most, std::uint32_t lent) {
    return lent == 0 ? std::max(1U, (most + 1) / 2) : std::min((most + 1) / 2, most - std::min(most, lent));
  };
  const PoolCounts counts = upper_->counts();
  const std::uint32_t eighth = counts.total / 8;
  const std::uint32_t evictable = counts.available() + counts.borrowed;
  const std::uint32_t on_loan = on_loan_;  // without copies that are late, perhaps for ever
  return {.blocks = next(std::min(counts.total - std::min(counts.total, largest_), eighth), on_loan),
          .unused = next(evictable > largest_ ? std::min(evictable - largest_, eighth) : evictable / 8,
                         std::min(counts.borrowed, on_loan))};
}

// The blocks of these keys, in order; keys that have none are gone from the list.
std::shared_ptr<CopyLoan> OffloadEdge::Impl::borrow(std::vector<BlockKey>& keys) {
  auto loan = std::make_shared<CopyLoan>(upper_->borrow(keys), on_loan_, wake_);
  const std::vector<BlockFacts> facts = loan->blocks().facts();
  std::size_t found = 0;
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) {
    if (found < facts.size() && facts[found].block.key == key) {
      ++found;
      return false;
    }
    // A copy that is late may still read it.
    resolve(key, upper_->contains(key) ? OffloadRefusal::kUnderWay : OffloadRefusal::kGone);
    return true;
  });
  return loan;
}

// Only requests name the engine's blocks: somebody asked for this one, or it would not wait.
const EngineBlocks& OffloadEdge::Impl::engine_blocks_of(Asker asker) const {
  return requests_.find(asker.request)->source;
}

// Keeps the keys that wait for the same step of the engine as the first one; the others stay in the queue. A copy has one
// mark: with a later one than its own a block would be read when it may hold something else.
void OffloadEdge::Impl::keep_one_step(std::vector<BlockKey>& keys) const {
  const auto mark_of = [this](const BlockKey& key)
                           CAIRN_REQUIRES(mutex_) { return engine_blocks_of(keys_.at(key).askers.front()).not_before; };
  const StepMark mark = mark_of(keys.front());
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) { return mark_of(key) != mark; });
}

CopySource OffloadEdge::Impl::engine_source(std::span<const BlockKey> keys) const {
  EngineBlocks blocks;
  const auto held = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const BlockKey& key : keys) {
    const Asker asker = keys_.at(key).askers.front();
    const EngineBlocks& source = engine_blocks_of(asker);
    blocks.not_before = source.not_before;  // the same of all: see keep_one_step()
    blocks.block_ids.push_back(source.block_ids[asker.index]);
    blocks.facts.push_back(source.facts[asker.index]);
    if (held->empty() || held->back() != source.held) {
      held->push_back(source.held);
    }
  }
  blocks.held = held;
  return {std::move(blocks)};
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
                   .deadline = deadline_after(now, options_.deadline),
                   .done = [this, shared](TierLink::Arrived&& arrived) { landed(*shared, std::move(arrived)); }});
  if (!begun) {
    return Unexpected(Error(begun.error().error));
  }
  for (const BlockKey& key : shared->keys) {
    queue_.erase(key);
    keys_.at(key).phase = Phase::kUnderWay;
  }
  full_since_.reset();
  is_stuck_ = false;
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
        resolve(batch.keys[i], why_not(arrived.states[i]), arrived.error);
      }
      under_way_ -= static_cast<std::uint32_t>(batch.keys.size());
    }
    // What was shed is looked for again only if copies get anywhere.
    if (shed_some_ && std::ranges::find(arrived.states, BlockState::kDone) != arrived.states.end()) {
      shed_some_ = false;
      missed_some_ = true;
    }
    --batches_;
    is_full_ = false;
    full_since_.reset();
    answers = requests_.take_answers();
  }
  if (std::ranges::find(arrived.states, BlockState::kExpired) != arrived.states.end()) {
    if (const std::shared_ptr<CopyLoan> loan = batch.loan.lock()) {
      loan->uncount();
    }
  }
  deliver(std::move(answers));
  wake_();
}

}  // namespace cairn
