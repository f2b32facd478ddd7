#include "cairn/connector/operation_runner.h"

#include <utility>

#include "cairn/base/own_thread.h"

namespace cairn {

namespace {

constexpr std::uint32_t kPriority = 50;  // of what is saved, of 100

std::vector<BlockFacts> facts_of(const OperationRunner::Save& save) {
  std::vector<BlockFacts> facts;
  facts.reserve(save.keys.size());
  SequenceHash parent = save.parent;
  for (std::size_t i = 0; i < save.keys.size(); ++i) {
    facts.push_back(
        {.block = {.key = save.keys[i], .parent = parent, .tokens_hash = save.token_hashes[i]}, .priority = kPriority});
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
  given_.clear();
  for (const Save& save : batch.saves) {
    given_.push_back(save.operation);
  }
  for (const Load& load : batch.loads) {
    given_.push_back(load.operation);
  }
  std::list<Batch> handed(1);
  inbox_->given_out(batch.iteration, given_);
  given_.clear();
  handed.front() = std::move(batch);
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
    carry_out(batch);
  }
}

void OperationRunner::carry_out(Batch& batch) {
  for (Save& save : batch.saves) {
    begin(save, batch.saves_after, batch.save_deadline);
  }
  for (const OperationPtr& load : batch.cancelled) {
    if (load->load) {
      manager_.cancel(*load->load);
    }
  }
  for (Load& load : batch.loads) {
    begin(load, batch.loads_after, batch.load_deadline);
  }
}

void OperationRunner::begin(Save& save, StepMark mark, TimePoint deadline) {
  const Operation& operation = *save.operation;
  const auto hold = std::make_shared<OperationHold>(inbox_, save.operation);
  const std::size_t blocks = save.keys.size();
  counts_->asked(blocks);
  EngineBlocks source{
      .block_ids = operation.slots, .facts = facts_of(save), .held = hold, .fence = save.fence, .not_before = mark};
  Result<OffloadRequestId> begun =
      manager_.offload(*save_to_, std::move(source),
                       {.keys = std::move(save.keys),
                        .priority = kPriority,
                        .deadline = deadline,
                        .done = [hold, counts = counts_](OffloadOutcome&& outcome) { counts->over(outcome); }});
  if (!begun) {
    counts_->turned_away(begun.error(), blocks);
  }
}

void OperationRunner::begin(Load& load, StepMark mark, TimePoint deadline) {
  Operation& operation = *load.operation;
  const auto hold = std::make_shared<OperationHold>(inbox_, load.operation);
  // What is worth loading was weighed when it was matched.
  Result<LoadId> begun = manager_.load_into(
      {.block_ids = operation.slots, .held = hold, .not_before = mark},
      {.keys = std::move(load.keys), .deadline = deadline, .weigh = false, .done = [hold](LoadOutcome&& result) {
         hold->arrived(result.prefix);
       }});
  if (begun) {
    operation.load = *begun;
  }
}

}  // namespace cairn
