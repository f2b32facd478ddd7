#include "cairn/connector/operation_runner.h"

#include <utility>

#include "cairn/base/own_thread.h"

namespace cairn {

namespace {

std::vector<BlockFacts> facts_of(const Operation& save) {
  std::vector<BlockFacts> facts;
  facts.reserve(save.keys.size());
  SequenceHash parent = save.parent;
  for (std::size_t i = 0; i < save.keys.size(); ++i) {
    facts.push_back({.block = {.key = save.keys[i], .parent = parent, .tokens_hash = save.token_hashes[i]},
                     .priority = save.priority,
                     .priority_ms = save.priority_ms,
                     .time_to_live_ms = save.time_to_live_ms});
    parent = save.keys[i].sequence_hash();
  }
  return facts;
}

}  // namespace

OperationRunner::OperationRunner(const KvBlockManager& manager, std::shared_ptr<OperationInbox> inbox,
                                 std::shared_ptr<SaveCounts> counts, std::optional<CacheLevel> save_to)
    : manager_(manager),
      inbox_(std::move(inbox)),
      counts_(std::move(counts)),
      save_to_(save_to),
      thread_(start_own_thread("cairn-connector", [this] { serve(); })) {}

OperationRunner::~OperationRunner() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    called_.notify_all();
  }
  thread_.join();
}

void OperationRunner::run(Batch&& batch) {
  std::list<Batch> handed(1);
  inbox_->add(batch.iteration);
  handed.front() = std::move(batch);
  enqueue(handed);
}

void OperationRunner::enqueue(std::list<Batch>& handed) {
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

void OperationRunner::start(Batch& batch) {
  if (!batch.hinted.empty()) {
    (void)manager_.hint(batch.hinted, batch.hint);
  }
  for (const OperationPtr& save : batch.iteration.saves) {
    start_save(save, batch.saves_after, batch.save_deadline);
  }
  for (const OperationPtr& load : batch.cancelled) {
    if (load->manager_id) {
      manager_.cancel(LoadId{*load->manager_id});
    }
  }
  for (const OperationPtr& load : batch.iteration.loads) {
    start_load(load, batch.loads_after, batch.load_deadline);
  }
}

void OperationRunner::start_save(const OperationPtr& save, StepMark mark, TimePoint deadline) {
  const OperationPtr hold = OperationInbox::hold(inbox_, save);
  const std::size_t blocks = save->keys.size();
  counts_->asked(blocks);
  EngineBlocks source{.block_ids = save->block_ids,
                      .facts = facts_of(*save),
                      .held = hold,
                      .fence = save->fence,
                      .not_before = mark,
                      .tenant = save->tenant};
  const Result<OffloadRequestId> started =
      manager_.offload(*save_to_, std::move(source),
                       {.keys = std::move(save->keys),
                        .priority = save->priority,
                        .deadline = deadline,
                        .done = [hold, counts = counts_](OffloadOutcome&& outcome) { counts->over(outcome); }});
  if (!started) {
    counts_->turned_away(started.error(), blocks);
  }
}

void OperationRunner::start_load(const OperationPtr& load, StepMark mark, TimePoint deadline) {
  const OperationPtr hold = OperationInbox::hold(inbox_, load);
  // match() has weighed loading against computing already.
  const Result<LoadId> started = manager_.load_into(
      {.block_ids = load->block_ids, .held = hold, .not_before = mark},
      {.keys = std::move(load->keys), .deadline = deadline, .weigh = false, .done = [hold](LoadOutcome&& outcome) {
         hold->loaded_blocks = outcome.prefix;
       }});
  if (started) {
    load->manager_id = static_cast<std::uint64_t>(*started);
  }
}

}  // namespace cairn
