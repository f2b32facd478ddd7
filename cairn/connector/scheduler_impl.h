// SchedulerConnector::Impl: the scheduler's side, in three files: requests (scheduler_connector.cc), iterations
// (scheduler_build.cc), results (scheduler_results.cc).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/connector/device_block_use.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/operation_runner.h"
#include "cairn/connector/request_table.h"
#include "cairn/connector/save_counts.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/slot_manager.h"

namespace cairn {

class SchedulerConnector::Impl {
 public:
  Impl(const Options& options, SlotManager slots, KvBlockManager manager, std::unique_ptr<Leader> ranks,
       std::shared_ptr<OperationInbox> inbox, std::shared_ptr<std::atomic<bool>> rank_came_back);
  ~Impl();

  [[nodiscard]] SlotResult<RequestHandle> add(const RequestId& request, std::span<const Token> tokens,
                                              const RequestSalt& salt, std::span<const MmRun> runs);
  [[nodiscard]] std::optional<RequestHandle> find(const RequestId& request) const { return table_.find(request); }
  [[nodiscard]] SlotResult<SlotState> state(RequestHandle request);
  [[nodiscard]] SlotResult<Match> match(RequestHandle request, std::size_t local_tokens);
  [[nodiscard]] SlotStatus allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                                     std::size_t loaded_tokens);
  [[nodiscard]] Status build(const Iteration& iteration, std::vector<std::byte>& metadata);
  [[nodiscard]] std::span<const Refused> refused() const { return refused_; }
  [[nodiscard]] SlotResult<bool> finish(RequestHandle request, std::optional<std::size_t> computed_tokens);
  [[nodiscard]] Results take_results();
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] SaveStatus saves() const { return save_counts_->status(); }
  [[nodiscard]] const KvBlockManager& manager() const { return *manager_; }
  [[nodiscard]] Leader& ranks() const { return *ranks_; }

 private:
  using Kind = SlotState::Kind;

  // --- requests ---
  [[nodiscard]] std::size_t blocks_to_load(const ExternallyManagedDeviceSlot& slot, std::size_t local_tokens) const;
  [[nodiscard]] SlotStatus check_blocks(std::span<const BlockId> blocks) const;
  [[nodiscard]] static Unexpected<SlotError> listed_twice(const RequestEntry& entry, BlockId block);
  // Of `count` more blocks, those whose tokens are in the engine's own cache: other requests may have them too.
  [[nodiscard]] std::size_t shared_blocks(const RequestEntry& entry, std::size_t count,
                                          std::size_t local_tokens) const {
    const std::size_t local = local_tokens / block_size_;
    return std::min(count, local - std::min(local, entry.slot->num_device_blocks_allocated()));
  }
  // Adds the blocks to the request's table, unless one stands there twice.
  [[nodiscard]] SlotStatus add_blocks(RequestEntry& entry, std::span<const BlockId> blocks, std::size_t local_tokens);
  // That the request may have the blocks of its table from `first` on, the first `shared` of them together with others.
  [[nodiscard]] SlotStatus check_table(const RequestEntry& entry, std::size_t first, std::size_t shared);
  [[nodiscard]] SlotStatus check_allocated(const RequestEntry& entry, std::span<const BlockId> blocks,
                                           std::size_t local_tokens, std::size_t loaded_tokens) const;
  // The slot has operations to give.
  void note_operations(RequestEntry& entry) {
    if (!entry.has_operations && entry.slot->has_pending_operations()) {
      with_operations_.push_back(entry.handle);
      entry.has_operations = true;
    }
  }
  // What a slot drops its device blocks in comes after this: had_blocks_ are those that it had.
  void remember_blocks(const RequestEntry& entry) {
    const std::span<const BlockId> blocks = entry.slot->device_blocks();
    had_blocks_.assign(blocks.begin(), blocks.end());
  }
  RequestId remove(RequestEntry& entry);

  // --- an iteration ---
  void build_all(const Iteration& iteration, std::vector<std::byte>& metadata);
  void lose_iteration(const Iteration& iteration);
  void check_new_tables();
  void preempt(RequestHandle request, std::uint64_t number);
  void schedule(const Scheduled& scheduled, std::uint64_t number);
  [[nodiscard]] inline SlotStatus step(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number);
  [[nodiscard]] SlotStatus take_new_blocks(RequestEntry& entry, std::span<const BlockId> blocks,
                                           std::size_t local_tokens);
  [[nodiscard]] SlotStatus prepare(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number);
  [[nodiscard]] SlotStatus step_beside_load(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number);
  [[nodiscard]] SlotStatus settle_guesses(RequestEntry& entry, std::size_t accepted, std::vector<Token>& kept);
  [[nodiscard]] static SlotStatus check_late_runs(const RequestEntry& entry, const Scheduled& scheduled);
  [[nodiscard]] SlotStatus set_computed(RequestEntry& entry, std::size_t computed_tokens);
  [[nodiscard]] static std::size_t most_computed(const RequestEntry& entry) {
    return std::max(entry.computable, entry.slot->computed_tokens());
  }
  [[nodiscard]] static Unexpected<SlotError> never_scheduled(const RequestEntry& entry, std::size_t computed_tokens);
  static void note_scheduled(RequestEntry& entry, const Scheduled& scheduled, std::size_t tokens);
  void pass_over(std::uint64_t number);
  void begin_loads(std::uint64_t number);
  void collect(RequestEntry& entry);
  void give_out(RequestEntry& entry, OnboardOperation&& load);
  void give_out(RequestEntry& entry, OffloadOperation&& save);
  void give_out(RequestEntry& entry, const CancelOperation& cancel);
  void give_out(RequestEntry& entry, const FenceOperation& fence);
  void hand_over(std::uint64_t number);
  // `blocks`: the request's table, from its first block on.
  void drop_load(RequestEntry& entry, std::span<const BlockId> blocks);
  void give_up(RequestEntry& entry, Error error);

  // --- results ---
  void load_is_over(RequestEntry& entry, const Operation& load, std::size_t arrived, Results& results);

  const LoadMode load_mode_;
  const std::uint32_t loading_blocks_limit_;
  const std::uint32_t least_blocks_;
  const std::uint32_t ask_again_;
  const Duration load_deadline_;
  const Duration save_deadline_;
  const Clock& clock_;
  const std::size_t block_size_;
  const std::uint32_t device_blocks_;
  const std::optional<CacheLevel> save_to_;

  SlotManager slots_;
  RequestTable table_;
  DeviceBlockUse device_use_;
  std::vector<BlockId> had_blocks_;  // memory that is used again
  // What allocated() added to tables. Whether another request has a block is known with the preemptions of the iteration:
  // an engine gives the blocks of a request that it preempts to the next one before it says so.
  struct NewBlocks {
    RequestHandle request{};
    std::size_t first = 0;   // in the request's table
    std::size_t shared = 0;  // of the blocks from there on
  };
  std::vector<NewBlocks> unchecked_;
  std::optional<std::uint64_t> iteration_ = {};  // the latest
  std::vector<RequestHandle> running_;           // in the latest iteration
  std::vector<RequestHandle> running_before_;    // memory that is used again
  std::size_t running_on_ = 0;                   // of those, how many run in this iteration too
  std::vector<RequestHandle> to_load_;           // allocated, for the next metadata, in that order
  std::vector<RequestHandle> with_operations_;   // of the next metadata
  std::vector<Refused> refused_;
  IterationMetadata metadata_;
  OperationRunner::Batch batch_;
  std::size_t loading_blocks_ = 0;  // allocated for loads that are not over
  std::size_t under_way_ = 0;       // operations
  std::vector<OperationInbox::Over> over_;
  const std::shared_ptr<std::atomic<bool>> rank_came_back_;

  // From here on in the order of their needs; what comes later ends earlier.
  std::unique_ptr<Leader> ranks_;
  std::shared_ptr<OperationInbox> inbox_;
  std::optional<KvBlockManager> manager_;
  std::shared_ptr<SaveCounts> save_counts_;
  std::optional<OperationRunner> runner_;
};

// What a handle is answered that names no request.
[[nodiscard]] Unexpected<SlotError> unknown_request(RequestHandle request);

}  // namespace cairn
