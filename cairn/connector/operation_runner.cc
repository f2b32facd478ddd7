#include "cairn/connector/operation_runner.h"

#include <algorithm>
#include <initializer_list>
#include <new>
#include <utility>

#include "cairn/base/own_thread.h"

namespace cairn {

namespace {

std::vector<BlockFacts> facts_of(const Operation& save) {
  std::vector<BlockFacts> facts;
  facts.reserve(save.keys.size());
  SequenceHash parent = save.parent ? save.parent->sequence_hash() : SequenceHash{0};
  for (std::size_t i = 0; i < save.keys.size(); ++i) {
    if (save.keys[i].position() == 0) {
      parent = SequenceHash{0};
    }
    facts.push_back({.block = {.key = save.keys[i], .parent = parent, .tokens_hash = save.token_hashes[i]},
                     .priority = save.priority,
                     .priority_ms = save.priority_ms,
                     .time_to_live_ms = save.time_to_live_ms});
    parent = save.keys[i].sequence_hash();
  }
  return facts;
}

std::string text_of(const RequestId& id) { return id.text() != nullptr ? *id.text() : std::to_string(*id.number()); }

SavedBlocks outcome_of(const OffloadOutcome& outcome) {
  using enum OffloadRefusal;
  const auto refused = [&outcome](std::initializer_list<OffloadRefusal> reasons) {
    std::uint32_t blocks = 0;
    for (const OffloadRefusal reason : reasons) {
      blocks += outcome.refused[static_cast<std::size_t>(reason)];
    }
    return blocks;
  };
  SavedBlocks blocks{
      .saved = static_cast<std::uint32_t>(std::ranges::count(outcome.is_below, true)),
      .filtered = refused({kTooShort, kNeverSeenTwice, kWouldNotLast, kOverBudget, kLowPriority, kFiltered, kNoParent}),
      .shed = refused({kShed, kNoRoom}),
      .unavailable = refused({kTierOut})};
  const std::uint32_t known = blocks.saved + blocks.filtered + blocks.shed + blocks.unavailable;
  blocks.failed = static_cast<std::uint32_t>(outcome.is_below.size()) - known;
  return blocks;
}

// The manager did not accept the save.
SavedBlocks refused(const Error& error, std::uint32_t blocks) {
  switch (error.code) {
    case ErrorCode::kExhausted:
      return {.shed = blocks};
    case ErrorCode::kFailedPrecondition:
      return {.unavailable = blocks};
    default:
      return {.failed = blocks};
  }
}

}  // namespace

OperationRunner::OperationRunner(const KvBlockManager& manager, Leader& leader, std::shared_ptr<OperationInbox> inbox,
                                 std::shared_ptr<SaveCounts> counts, const Options& options)
    : manager_(manager), leader_(leader), inbox_(std::move(inbox)), counts_(std::move(counts)), options_(options) {
  if (options_.own_thread) {
    thread_ = start_own_thread("cairn-connector", [this] { serve(); });
  }
}

OperationRunner::~OperationRunner() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    called_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  try {
    for (const Batch& batch : batches_) {
      for (const SettledSave& settled : batch.settled) {
        pass_on(settled);
      }
    }
  } catch (const std::bad_alloc&) {
    // The manager waits for these saves up to its limit.
  }
}

void OperationRunner::run(Batch&& batch) {
  std::list<Batch> handed(1);
  inbox_->add(batch.iteration);
  handed.front() = std::move(batch);
  enqueue(handed);
}

void OperationRunner::enqueue(std::list<Batch>& handed) {
  if (!options_.own_thread) {
    start(handed.front());
    return;
  }
  bool wakes = false;
  {
    const MutexLock lock(mutex_);
    batches_.splice(batches_.end(), handed);
    wakes = is_waiting_;
  }
  if (wakes) {
    called_.notify_one();
  }
}

void OperationRunner::serve() {
  for (;;) {
    mutex_.lock();
    while (batches_.empty() && !is_ending_) {
      is_waiting_ = true;
      called_.wait(mutex_);
      is_waiting_ = false;
    }
    if (is_ending_) {
      mutex_.unlock();
      return;
    }
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    mutex_.unlock();
    start(batch);
  }
}

void OperationRunner::hint(std::vector<BlockKey> keys, const RetentionHint& hint) {
  std::list<Batch> handed(1);
  handed.front().hinted = std::move(keys);
  handed.front().hint = hint;
  enqueue(handed);
}

void OperationRunner::end_request(std::vector<BlockKey> keys, RequestEnding ending) {
  std::list<Batch> handed(1);
  handed.front().ended = std::move(keys);
  handed.front().ending = ending;
  enqueue(handed);
}

void OperationRunner::settle(std::vector<SettledSave>& settled) {
  std::list<Batch> handed(1);
  handed.front().settled.swap(settled);
  enqueue(handed);
}

void OperationRunner::prefetch(std::vector<BlockKey> keys) {
  std::list<Batch> handed(1);
  handed.front().prefetched = std::move(keys);
  enqueue(handed);
}

void OperationRunner::start(Batch& batch) {
  if (!batch.prefetched.empty()) {
    (void)manager_.prefetch({.keys = std::move(batch.prefetched)});
  }
  if (!batch.hinted.empty()) {
    (void)manager_.hint(batch.hinted, batch.hint);
  }
  if (!batch.ended.empty()) {
    try {
      (void)manager_.end_request(batch.ended, batch.ending);
    } catch (const std::bad_alloc&) {
      // The blocks are kept as if nothing were known of the ending.
    }
  }
  if (!batch.used.empty()) {
    manager_.used(*options_.save_to, batch.used);
  }
  for (const SettledSave& settled : batch.settled) {
    pass_on(settled);
  }
  for (const OperationPtr& save : batch.iteration.saves) {
    start_save(save, batch.save_deadline);
  }
  for (const OperationPtr& load : batch.cancelled) {
    if (load->manager_id) {
      manager_.cancel(LoadId{*load->manager_id});
    }
  }
  for (const OperationPtr& load : batch.iteration.loads) {
    start_load(load, batch.load_deadline);
  }
}

void OperationRunner::pass_on(const SettledSave& settled) {
  const StepMark mark = settled.save->not_before;
  const std::span<const BlockId> blocks = settled.save->block_ids;
  if (settled.confirmed > 0) {
    leader_.confirm(mark, blocks.first(settled.confirmed));
  }
  if (settled.confirmed < blocks.size()) {
    counts_->withdrawn(blocks.size() - settled.confirmed);
    leader_.withdraw(mark, blocks.subspan(settled.confirmed));
  }
}

void OperationRunner::start_save(const OperationPtr& save, TimePoint deadline) {
  const OperationPtr hold = OperationInbox::hold(inbox_, save);
  const std::size_t blocks = save->keys.size();
  counts_->asked(blocks);
  if (save->in_step) {
    counts_->asked_in_step(blocks);
  }
  EngineBlocks source{.block_ids = save->block_ids,
                      .facts = facts_of(*save),
                      .held = hold,
                      .fence = save->fence,
                      .not_before = save->not_before,
                      .tenant = save->tenant};
  // The events of the copies carry the token ids.
  EventLog* const events = save->token_ids.empty() ? nullptr : manager_.events();
  std::vector<BlockKey> expected;
  if (events != nullptr) {
    expected = save->keys;
    expected.resize(events->expect_token_ids(expected, save->token_ids));
  }
  const auto forget = [events, expected = std::move(expected)] {
    if (events != nullptr) {
      events->forget_token_ids(expected);
    }
  };
  const Result<OffloadRequestId> started =
      manager_.offload(*options_.save_to, std::move(source),
                       {.keys = std::move(save->keys),
                        .priority = save->priority,
                        .deadline = deadline,
                        .done =
                            [hold, forget, counts = counts_](OffloadOutcome&& outcome) {
                              forget();
                              counts->over(outcome);
                              hold->saved = outcome_of(outcome);
                            },
                        .request = options_.names_requests ? text_of(save->request) : std::string(),
                        .sequence_tokens = save->sequence_tokens,
                        .parent = save->parent});
  if (!started) {
    counts_->turned_away(started.error(), blocks);
    hold->saved = refused(started.error(), static_cast<std::uint32_t>(blocks));
    forget();
  }
}

void OperationRunner::start_load(const OperationPtr& load, TimePoint deadline) {
  const OperationPtr hold = OperationInbox::hold(inbox_, load);
  // match() has weighed loading against computing already.
  const Result<LoadId> started = manager_.load_into(
      {.block_ids = load->block_ids, .held = hold, .not_before = load->not_before},
      {.keys = std::move(load->keys), .deadline = deadline, .weigh = false, .done = [hold](LoadOutcome&& outcome) {
         hold->loaded_blocks = outcome.prefix;
         hold->loaded_from_disk = outcome.from[index_of(CacheLevel::kG3)];
       }});
  options_.promised->remove(load->block_ids.size(), load->on_disk);
  if (started) {
    load->manager_id = static_cast<std::uint64_t>(*started);
  }
}

}  // namespace cairn
