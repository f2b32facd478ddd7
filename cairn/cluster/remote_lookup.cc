#include "cairn/cluster/remote_lookup.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <unordered_set>
#include <utility>

#include "cairn/base/mutex.h"
#include "cairn/cluster/store_label.h"

namespace cairn {

namespace {

// Keys that were asked for lately, in two halves: the older one is dropped when it is old, or when the newer one is full.
class RecentKeys {
 public:
  RecentKeys(std::uint32_t most, Duration age) : most_(most / 2), age_(age / 2) {}

  // Whether it was not there.
  bool insert(const BlockKey& key, TimePoint now) {
    if (now >= turn_at_ || newer_.size() >= most_) {
      older_ = std::exchange(newer_, {});
      turn_at_ = now + age_;
    }
    return !older_.contains(key) && newer_.insert(key).second;
  }
  void clear() {
    older_.clear();
    newer_.clear();
  }

 private:
  const std::size_t most_;
  const Duration age_;
  TimePoint turn_at_ = TimePoint::min();
  std::unordered_set<BlockKey> newer_;
  std::unordered_set<BlockKey> older_;
};

// A request takes at most a quarter of the pool while it is in flight.
RemoteLookup::Options within(RemoteLookup::Options options, const BlockPool& pool) {
  options.batch = std::clamp(pool.capacity() / 4, 1U, options.batch);
  return options;
}

}  // namespace

struct RemoteLookup::State : std::enable_shared_from_this<RemoteLookup::State> {
  // What find() waits for.
  struct Question {
    std::vector<BlockKey> keys;
    std::function<void(std::uint32_t)> done;
    std::uint32_t open = 0;  // batches; guarded by the mutex
  };
  struct Batch {
    std::vector<BlockKey> keys;
    TimePoint deadline{};
    std::shared_ptr<Question> question = {};  // null: nobody is told
    std::optional<MutableBlocks> blocks = {};
    std::vector<StoreOutcome> outcomes = {};
    std::atomic<std::size_t> left{0};  // items without an outcome; the last one sees all outcomes
  };
  using BatchPtr = std::shared_ptr<Batch>;

  State(Tier& given_tier, BlockStore& given_store, RemoteSpace& given_space, const Clock& given_clock,
        const Options& given, std::function<void()> given_wake)
      : tier(given_tier),
        store(given_store),
        space(given_space),
        clock(given_clock),
        options(within(given, *given_tier.pool())),
        wake(std::move(given_wake)),
        recent(given.remembered, given.again) {}

  void queue(std::vector<BlockKey> keys, TimePoint deadline, const std::shared_ptr<Question>& question)
      CAIRN_REQUIRES(mutex) {
    for (std::size_t first = 0; first < keys.size(); first += options.batch) {
      const std::size_t end = std::min<std::size_t>(keys.size(), first + options.batch);
      const auto batch = std::make_shared<Batch>();
      batch->keys.assign(keys.begin() + static_cast<std::ptrdiff_t>(first),
                         keys.begin() + static_cast<std::ptrdiff_t>(end));
      batch->deadline = deadline;
      batch->question = question;
      if (question != nullptr) {
        ++question->open;
      }
      counts.pending += static_cast<std::uint32_t>(batch->keys.size());
      waiting.push_back(batch);
    }
  }

  // The batch has its outcome, or none.
  void finish(const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    batch->blocks.reset();
    std::shared_ptr<Question> over;
    {
      const MutexLock lock(mutex);
      counts.pending -= static_cast<std::uint32_t>(batch->keys.size());
      if (batch->question != nullptr && --batch->question->open == 0) {
        over = std::move(batch->question);
      }
    }
    if (over != nullptr) {
      const std::size_t all = over->keys.size();
      std::size_t known = 0;
      while (known < all && tier.pool()->contains(over->keys[known])) {
        ++known;
      }
      over->done(static_cast<std::uint32_t>(known));
    }
  }

  void drop(const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      counts.dropped += batch->keys.size();
    }
    finish(batch);
  }

  void ask(const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    if (!tier.may(TierUse::kReading)) {
      drop(batch);
      return;
    }
    const std::uint64_t changes = space.changes();
    // Before the store is asked: what is registered in blocks from before a fence is not found.
    if (Result<MutableBlocks> blocks = tier.pool()->allocate(static_cast<std::uint32_t>(batch->keys.size()))) {
      batch->blocks.emplace(*std::move(blocks));
    } else {
      tier.not_tried(TierUse::kReading);
      drop(batch);
      return;
    }
    {
      const MutexLock lock(mutex);
      ++in_flight;
    }
    space.resolve(changes, [self = shared_from_this(), batch, changes](const std::optional<std::string>& prefix) {
      if (prefix) {
        self->ask_at(*prefix, batch);
        return;
      }
      if (self->space.changes() == changes) {
        self->tier.failed(TierUse::kReading, self->space.error());
      } else {
        self->tier.not_tried(TierUse::kReading);
      }
      self->left_out(batch);
    });
  }

  void left_out(const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      --in_flight;
    }
    drop(batch);
  }

  void ask_at(const std::string& prefix, const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    StoreRequest request{.operation = StoreOperation::kContains, .deadline = batch->deadline};
    for (const BlockKey& key : batch->keys) {
      request.items.push_back({.key = store_key(prefix, tier.tag_of(key))});
    }
    batch->outcomes.resize(batch->keys.size());
    batch->left = batch->keys.size();
    request.done = [self = shared_from_this(), batch](std::size_t item, StoreOutcome&& outcome) {
      batch->outcomes[item] = std::move(outcome);
      if (--batch->left == 0) {
        self->answered(batch);
      }
    };
    {
      const MutexLock lock(mutex);
      counts.asked += batch->keys.size();
    }
    if (!store.submit(std::move(request))) {
      tier.not_tried(TierUse::kReading);
      left_out(batch);
    }
  }

  void answered(const BatchPtr& batch) CAIRN_EXCLUDES(mutex) {
    std::uint64_t found = 0;
    std::uint64_t failed = 0;
    const std::string* error = nullptr;
    for (std::size_t i = 0; i < batch->keys.size(); ++i) {
      MutableBlocks block = batch->blocks->take_front(1);
      const StoreOutcome& outcome = batch->outcomes[i];
      if (outcome.state == StoreState::kDone) {
        found += add(std::move(block), batch->keys[i], outcome.label) ? 1 : 0;
      } else if (outcome.state != StoreState::kAbsent && outcome.state != StoreState::kCorrupt) {
        ++failed;
        error = &outcome.error;
      }
    }
    if (failed == batch->keys.size()) {
      tier.failed(TierUse::kReading, *error);
    } else {
      tier.succeeded(TierUse::kReading);
    }
    {
      const MutexLock lock(mutex);
      --in_flight;
      counts.found += found;
      counts.failed += failed;
    }
    finish(batch);
    if (wake) {
      wake();  // another batch may be asked for
    }
  }

  // Registers what a label says. A value that is not such a block is none.
  bool add(MutableBlocks block, const BlockKey& key, const StoreLabelBytes& bytes) {
    const Result<StoreLabel> label = StoreLabel::decode(bytes);
    if (!label || label->tag != tier.tag_of(key) || label->block_bytes != tier.block_bytes()) {
      return false;
    }
    BlockFacts facts{.block = {.key = key,
                               .parent = SequenceHash{key.parent_fragment()},
                               .tokens_hash = BlockHash{label->tokens_hash}},
                     .priority = options.priority,
                     .checksum = static_cast<std::uint64_t>(label->checksum)};
    auto complete = std::move(block).complete_as(std::span(&facts, 1));
    if (!complete) {
      return false;
    }
    return (*std::move(complete)).register_blocks({.priority = options.priority}).has_value();
  }

  Tier& tier;
  BlockStore& store;
  RemoteSpace& space;
  const Clock& clock;
  const Options options;
  const std::function<void()> wake;
  Mutex mutex{LockRank::kExecutor};
  RecentKeys recent CAIRN_GUARDED_BY(mutex);
  std::deque<BatchPtr> waiting CAIRN_GUARDED_BY(mutex);
  std::uint32_t in_flight CAIRN_GUARDED_BY(mutex) = 0;
  RemoteLookupStatus counts CAIRN_GUARDED_BY(mutex);
  bool is_ended CAIRN_GUARDED_BY(mutex) = false;
};

RemoteLookup::RemoteLookup(Tier& tier, BlockStore& store, RemoteSpace& space, const Clock& clock,
                           const Options& options, std::function<void()> wake)
    : state_(std::make_shared<State>(tier, store, space, clock, options, std::move(wake))) {}
RemoteLookup::~RemoteLookup() { end(); }

void RemoteLookup::want(std::span<const BlockKey> keys) {
  std::vector<BlockKey> fresh;
  {
    const TimePoint now = state_->clock.now();
    const MutexLock lock(state_->mutex);
    const std::uint32_t pending = state_->counts.pending;
    const std::size_t room = state_->is_ended || pending >= state_->options.queue ? 0 : state_->options.queue - pending;
    for (const BlockKey& key : keys) {
      if (fresh.size() == room) {
        state_->counts.dropped += 1;
      } else if (state_->recent.insert(key, now)) {
        fresh.push_back(key);
      }
    }
    if (fresh.empty()) {
      return;
    }
    state_->queue(std::move(fresh), now + state_->options.timeout, nullptr);
  }
  state_->wake();
}

void RemoteLookup::find(std::vector<BlockKey> keys, TimePoint deadline, std::function<void(std::uint32_t)> done) {
  const auto question = std::make_shared<State::Question>();
  question->keys = keys;
  question->done = std::move(done);
  bool is_queued = false;
  {
    const TimePoint now = state_->clock.now();
    const MutexLock lock(state_->mutex);
    is_queued = !state_->is_ended && !keys.empty() && keys.size() + state_->counts.pending <= state_->options.queue;
    if (is_queued) {
      state_->queue(std::move(keys), std::min(deadline, now + state_->options.timeout), question);
    } else {
      state_->counts.dropped += keys.size();
    }
  }
  if (is_queued) {
    state_->wake();
  } else {
    question->done(0);
  }
}

bool RemoteLookup::pump() {
  bool any = false;
  while (true) {
    State::BatchPtr batch;
    {
      const MutexLock lock(state_->mutex);
      if (state_->waiting.empty() || state_->in_flight >= state_->options.in_flight) {
        return any;
      }
      batch = std::move(state_->waiting.front());
      state_->waiting.pop_front();
    }
    any = true;
    state_->ask(batch);
  }
}

bool RemoteLookup::is_idle() const {
  const MutexLock lock(state_->mutex);
  return state_->counts.pending == 0;
}

RemoteLookupStatus RemoteLookup::status() const {
  const MutexLock lock(state_->mutex);
  return state_->counts;
}

void RemoteLookup::end() {
  std::deque<State::BatchPtr> left;
  {
    const MutexLock lock(state_->mutex);
    state_->is_ended = true;
    left.swap(state_->waiting);
  }
  for (const State::BatchPtr& batch : left) {
    state_->drop(batch);
  }
}

}  // namespace cairn
