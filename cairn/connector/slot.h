// Slot: one request of an engine: its tokens, how far their KV is on the device, and what is to be loaded and saved.
//
// Pure logic: the scheduler says what the engine does, takes the operations that follow from it, starts
// them, and says when each has ended. A slot makes no calls. ExternallyManagedDeviceSlot adds the engine's device blocks.
// A block is offered for saving when its KV is computed through its last token and no token of it can be taken back,
// never when it is merely full. Blocks that the engine already had, or that a load brought, are not offered.
// An in-step save is offered ahead of that, with the iteration that computes its blocks. It is settled when the engine has
// said how far it came.
// In a model with layer groups the device blocks are in one table for each group, and a load or save has blocks of groups.
// What is saved: of full groups every block; of sliding and chunked groups what is needed at the end of the computed tokens and
// at a boundary that is worth keeping; of state groups the checkpoints at the end of the prompt, of the request, and at such a
// boundary. A slot takes blocks that have left the window out of its table: they are the engine's again.
//
// Thread safety: none; the scheduler's thread alone. Outcomes of operations are brought to that thread.
// Ownership: a SlotManager or a SchedulerConnector.
// Errors: a failed call changes nothing. The seeds' kinds are codes of Error: a slot that is unknown is kNotFound; a step
// that kSlotTransitions does not have, or a call that the state does not allow, is kFailedPrecondition; any other invalid
// operation is kInvalidArgument, kOutOfRange, kAlreadyExists or kNotFound (of an operation); errors of pools are passed on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_id.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/cache_groups.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

// The state of a request between the engine's scheduler and Cairn, and the legal transitions. One of eight kinds, two of
// which carry a number. kSlotTransitions lists every legal step; docs/connector.md shows the same table.
class SlotState {
 public:
  enum class Kind : std::uint8_t {
    kInitialized,    // added, never scheduled
    kNotScheduled,   // not in the current iteration: passed over, preempted, or loaded and waiting
    kOnboardStaged,  // tiers have blocks of it; its load has not started
    kOnboarding,     // its load is in flight
    kPrefilling,     // computes tokens that were known when it started or was resumed
    kDecoding,       // computes tokens that it generated
    kFinishing,      // over for the engine; operations still use its device blocks
    kFinished,       // over, and nothing touches its device blocks
  };
  static constexpr std::size_t kKinds = 8;

  [[nodiscard]] static constexpr SlotState initialized() { return {Kind::kInitialized, 0}; }
  [[nodiscard]] static constexpr SlotState not_scheduled() { return {Kind::kNotScheduled, 0}; }
  [[nodiscard]] static constexpr SlotState onboard_staged(std::size_t tokens) { return {Kind::kOnboardStaged, tokens}; }
  [[nodiscard]] static constexpr SlotState onboarding(std::uint64_t iteration) {
    return {Kind::kOnboarding, iteration};
  }
  [[nodiscard]] static constexpr SlotState prefilling() { return {Kind::kPrefilling, 0}; }
  [[nodiscard]] static constexpr SlotState decoding() { return {Kind::kDecoding, 0}; }
  [[nodiscard]] static constexpr SlotState finishing() { return {Kind::kFinishing, 0}; }
  [[nodiscard]] static constexpr SlotState finished() { return {Kind::kFinished, 0}; }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  // Tokens that can be loaded; only of OnboardStaged.
  [[nodiscard]] constexpr std::optional<std::size_t> staged_tokens() const {
    return kind_ == Kind::kOnboardStaged ? std::optional<std::size_t>(number_) : std::nullopt;
  }
  // The iteration that started the load; only of Onboarding.
  [[nodiscard]] constexpr std::optional<std::uint64_t> onboarding_iteration() const {
    return kind_ == Kind::kOnboarding ? std::optional<std::uint64_t>(number_) : std::nullopt;
  }
  // "Prefilling", "OnboardStaged(32)", "Onboarding(7)"
  [[nodiscard]] std::string to_string() const;

  friend constexpr bool operator==(const SlotState&, const SlotState&) = default;

 private:
  constexpr SlotState(Kind kind, std::uint64_t number) : kind_(kind), number_(number) {}

  Kind kind_;
  std::uint64_t number_;
};

// "Initialized", "NotScheduled" and so on
[[nodiscard]] std::string_view to_string(SlotState::Kind kind);

struct SlotTransition {
  SlotState::Kind from;
  SlotState::Kind to;
  std::string_view when;
};

inline constexpr auto kSlotTransitions = [] {
  using enum SlotState::Kind;
  return std::to_array<SlotTransition>({
      {kInitialized, kOnboardStaged, "tiers have blocks of the prompt"},
      {kInitialized, kPrefilling, "scheduled"},
      {kInitialized, kFinished, "aborted"},
      {kNotScheduled, kNotScheduled, "passed over again; preempted meanwhile"},
      {kNotScheduled, kOnboardStaged, "tiers have blocks: after preemption, or between chunks"},
      {kNotScheduled, kPrefilling, "scheduled, with known tokens left to compute"},
      {kNotScheduled, kDecoding, "scheduled, with all of them computed"},
      {kNotScheduled, kFinishing, "finished or aborted, operations are in flight"},
      {kNotScheduled, kFinished, "finished or aborted"},
      {kOnboardStaged, kOnboardStaged, "matched again"},
      {kOnboardStaged, kNotScheduled, "the match is gone; passed over; preempted"},
      {kOnboardStaged, kOnboarding, "scheduled: the load starts"},
      {kOnboardStaged, kPrefilling, "scheduled to compute instead of loading"},
      {kOnboardStaged, kFinishing, "aborted, saves from before a preemption are in flight"},
      {kOnboardStaged, kFinished, "aborted"},
      {kOnboarding, kNotScheduled, "the load has ended: all, some or none of its blocks were loaded"},
      {kOnboarding, kFinishing, "aborted, the load or another operation is in flight"},
      {kOnboarding, kFinished, "aborted before the load was taken"},
      {kPrefilling, kPrefilling, "scheduled for the next chunk"},
      {kPrefilling, kDecoding, "scheduled, with the prompt computed"},
      {kPrefilling, kNotScheduled, "passed over; preempted"},
      {kPrefilling, kFinishing, "finished or aborted, operations are in flight"},
      {kPrefilling, kFinished, "finished or aborted"},
      {kDecoding, kDecoding, "scheduled for the next tokens"},
      {kDecoding, kNotScheduled, "passed over; preempted"},
      {kDecoding, kFinishing, "finished or aborted, operations are in flight"},
      {kDecoding, kFinished, "finished or aborted"},
      {kFinishing, kFinished, "the last operation has ended"},
  });
}();

[[nodiscard]] constexpr bool is_legal(SlotState::Kind from, SlotState::Kind to) {
  // One bit for each step, in one word: the check reads no memory.
  constexpr auto kPlaceOf = [](SlotState::Kind before, SlotState::Kind after) {
    return static_cast<unsigned>(before) * SlotState::kKinds + static_cast<unsigned>(after);
  };
  constexpr std::uint64_t kLegal = [kPlaceOf] {
    std::uint64_t bits = 0;
    for (const SlotTransition& step : kSlotTransitions) {
      bits |= std::uint64_t{1} << kPlaceOf(step.from, step.to);
    }
    return bits;
  }();
  return ((kLegal >> kPlaceOf(from, to)) & 1U) != 0;
}

// Names an operation. Never used again, not even by a later request with the same id.
struct OperationId {
  std::uint64_t slot = 0;  // the RequestHandle of its request
  std::uint32_t number = 0;

  friend bool operator==(const OperationId&, const OperationId&) = default;
};

// What became of the blocks of a save; see TokenCounts.
struct SavedBlocks {
  std::uint32_t saved = 0;
  std::uint32_t filtered = 0;
  std::uint32_t shed = 0;
  std::uint32_t unavailable = 0;
  std::uint32_t failed = 0;
};

// The keys of blocks that the engine has named, and what its own events call them (engine_event_hash()).
struct EngineBlockNames {
  std::vector<BlockKey> keys = {};
  std::vector<BlockHash> event_hashes = {};  // one for each key, or none

  void append(const EngineBlockNames& more) {
    keys.insert(keys.end(), more.keys.begin(), more.keys.end());
    event_hashes.insert(event_hashes.end(), more.event_hashes.begin(), more.event_hashes.end());
  }
};

// One load or save of a request, from the slot that needs it to its outcome.
//
// A slot makes it, the metadata of an iteration names it to the workers, OperationRunner starts it at the manager, and
// OperationInbox brings its outcome back to the slot. Workers know id, request, in_step and block_ids only.
//
// Thread safety: a plain value. What it has to do does not change once the slot has handed it out; comments
// below say which thread may change the other fields.
struct Operation {
  // --- what it has to do ---
  OperationId id = {};
  bool is_load = false;  // load keys[i] into device block block_ids[i]; else save block_ids[i] as keys[i]
  // A load: the request computes in the iteration that loads it, and the engine waits layer by layer. A save: the iteration
  // computes the blocks, and each layer is read once it is computed.
  bool in_step = false;
  RequestId request = std::uint64_t{0};
  std::size_t first_block = 0;  // index in the sequence of the block that keys[0] names
  // Of a save in a model with layer groups: the group of the blocks, and how many blocks of the sequence one of them covers.
  std::uint32_t group = 0;
  std::uint32_t each = 1;
  std::vector<BlockKey> keys = {};  // OperationRunner moves them to the manager
  std::vector<BlockId> block_ids = {};
  std::vector<BlockHash> token_hashes = {};  // of a save: one for each key
  std::uint32_t on_disk = 0;                 // of a load: blocks that were on disk when they were matched
  std::optional<BlockKey> parent = {};       // of a save: the block before the first one
  std::size_t sequence_tokens = 0;           // of a save: that the request has when it is handed out
  std::vector<Token> token_ids = {};         // of a save, if events carry them (event_token_ids): of all its blocks
  StepMark not_before = {};                  // the step that the engine has to reach before it begins
  std::uint64_t fence = 0;                   // of a save: EngineBlocks::fence
  // Saves only: priority, lifetime and tenant of the blocks.
  std::uint32_t priority = 0;
  std::uint32_t priority_ms = 0;
  std::uint32_t time_to_live_ms = 0;
  TenantId tenant = kDefaultTenant;

  // --- what became of it ---
  // Set before it has ended.
  std::uint32_t loaded_blocks = 0;     // of a load: blocks from the first on that are on the device, verified
  std::uint32_t loaded_from_disk = 0;  // of those
  SavedBlocks saved = {};              // of a save
  bool is_fenced = false;              // the scheduler's thread
  // OperationInbox, under its lock.
  bool is_over = false;
  std::optional<std::size_t> place = {};
  // The manager's id of a load, once it is started. OperationRunner's thread.
  std::optional<std::uint64_t> manager_id = {};

  // Of a save.
  [[nodiscard]] std::size_t end_block() const { return first_block + block_ids.size() * each; }
};
using OperationPtr = std::shared_ptr<Operation>;

// What take_pending_operations() hands out.
struct SlotOperations {
  std::vector<OperationPtr> start = {};  // loads and saves, in the order in which they are to be started
  // Loads that are no longer needed; each may have ended, and its end is reported as always.
  std::vector<OperationPtr> cancel = {};
  // Saves whose device blocks the engine is about to use again: the next iteration begins only when they have ended.
  // Some may have ended already.
  std::vector<OperationPtr> fence = {};

  [[nodiscard]] bool empty() const { return start.empty() && cancel.empty() && fence.empty(); }
  void clear() {
    start.clear();
    cancel.clear();
    fence.clear();
  }
};

class Slot {
 public:
  [[nodiscard]] SlotState state() const { return state_; }
  [[nodiscard]] const TokenBlockSequence& sequence() const { return sequence_; }
  // Tokens, from the first on, whose KV is on the device.
  [[nodiscard]] std::size_t computed_tokens() const { return computed_; }
  // In a model with layer groups: in all tables together, those without a block included.
  [[nodiscard]] std::size_t num_device_blocks_allocated() const {
    return grouped_ == nullptr ? device_blocks_.size() : blocks_in_tables();
  }
  // Loads and saves that are not over, taken or not.
  [[nodiscard]] std::size_t operations_in_flight() const { return in_flight_.size(); }
  // Blocks of the sequence that are to be loaded, or being loaded.
  [[nodiscard]] std::size_t staged_blocks() const { return staged_.size(); }
  // Whether the engine has computed anything of the request since it was created or preempted.
  [[nodiscard]] bool has_run() const { return has_run_; }

  // --- what the scheduler decided for an iteration; iteration numbers never decrease ---
  // Onboarding if a load is staged, else Prefilling or Decoding, by what is computed.
  [[nodiscard]] Status mark_as_scheduled(std::uint64_t iteration);
  [[nodiscard]] Status mark_as_prefilling(std::uint64_t iteration);
  [[nodiscard]] Status mark_as_decoding(std::uint64_t iteration);
  // Offers the staged load. Requires its device blocks, and that the engine's own tokens are counted as computed.
  [[nodiscard]] Status mark_as_onboarding(std::uint64_t iteration);
  // Keeps the device blocks and drops a staged load: match again. Fails while a load is in flight.
  [[nodiscard]] Status mark_as_not_scheduled(std::uint64_t iteration);
  // The request ended or was aborted: Finished, or Finishing while operations use its device blocks. A load is cancelled,
  // saves go on.
  [[nodiscard]] Status mark_as_finished(std::uint64_t iteration);

  // --- matching ---
  // The blocks to look up in the tiers if the engine itself has the first `local_tokens`. Leaves at least one token to
  // compute, in a block that is computed whole. Empty if local_tokens is inside a block, or after a load that fell short:
  // what did not come once is computed.
  [[nodiscard]] std::span<const BlockKey> keys_to_match(std::size_t local_tokens) const;
  // How many of those keys, from the first on, the tiers have. Above 0: OnboardStaged. 0: unchanged, or NotScheduled if a
  // load was staged. An error of the lookup is passed on.
  [[nodiscard]] Status acquire_all_local_matches(std::size_t local_tokens, const Result<std::size_t>& found);
  // Of a model with layer groups: requests that follow may branch off after so many blocks, so what all groups need there is
  // saved. The latest call counts.
  void keep_boundary(std::size_t blocks);

  // --- tokens ---
  // Tokens that the request has for certain. `runs` are the multimodal items among them, with offsets from the start of the
  // request.
  [[nodiscard]] Status append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs = {});
  // Keys of the next full blocks, if the engine gives them (TokenBlockSequence::adopt()). Not of draft tokens.
  [[nodiscard]] Status append_block_names(const EngineBlockNames& names);
  // Draft tokens of speculative decoding, which the next iterations compute and verify.
  [[nodiscard]] Status append_draft_tokens(std::span<const Token> tokens);
  // Keeps the first `accepted` of all draft tokens, and takes back the others and what was computed of them.
  [[nodiscard]] Status settle_draft_tokens(std::size_t accepted);

  // --- in-step saves ---
  // Offers the blocks that the engine fills if it computes up to `tokens` in this iteration, if there are at least
  // `least_blocks`. Returns whether it has. Blocks with draft tokens, or without a device block or a key, are not offered.
  // Requires: the in-step save before is settled, and least_blocks > 0.
  bool offer_in_step_save(std::size_t tokens, std::size_t least_blocks);
  [[nodiscard]] bool has_in_step_save() const { return in_step_save_ != nullptr; }
  struct SettledSave {
    OperationPtr save;
    std::size_t confirmed = 0;  // blocks, from the first on; the others were not computed
  };
  // The engine has computed up to `tokens`. Blocks that were not computed are offered again when they are.
  // Requires: has_in_step_save().
  [[nodiscard]] SettledSave settle_in_step_save(std::size_t tokens) noexcept;

  // --- operations ---
  // Blocks that the engine has in its own cache are offered for saving too: they may have been rejected before.
  void offer_cached_blocks() { offers_cached_blocks_ = true; }
  // Of a model with layer groups: the request is about to end, so the checkpoints at its last boundary are worth saving.
  void offer_last_states();
  [[nodiscard]] const SlotOperations& pending_operations() const { return pending_; }
  // Replaces `out` by what came up since the last call, and reuses its memory. The caller starts each operation and reports
  // when it has ended.
  void take_pending_operations(SlotOperations& out) noexcept;
  // A load has ended: its first `arrived` blocks are on the device, verified, and nothing writes to any of its blocks.
  [[nodiscard]] Status onboard_done(OperationId id, std::size_t arrived);
  // A save has ended, whatever became of it: nothing reads its device blocks.
  [[nodiscard]] Status offload_done(OperationId id);

 protected:
  using enum SlotState::Kind;

  // Requires: a sequence with a token. `groups`: null for a model with one block table; outlives the slot.
  Slot(std::uint64_t serial, TokenBlockSequence&& sequence, const CacheGroups* groups);
  Slot(Slot&&) = default;
  ~Slot() = default;

  // What every mark checks first: the table, and that iteration numbers do not decrease.
  [[nodiscard]] Status check_step(SlotState to, std::uint64_t iteration) const;
  // Errors of the functions that are inlined.
  [[nodiscard, gnu::cold]] Unexpected<Error> illegal_step(SlotState to) const;
  [[nodiscard, gnu::cold]] Unexpected<Error> earlier_iteration(std::uint64_t iteration) const;
  [[nodiscard, gnu::cold]] Unexpected<Error> wrong_phase() const;
  [[nodiscard, gnu::cold]] Unexpected<Error> gets_no_tokens(const char* operation) const;
  [[nodiscard, gnu::cold]] Unexpected<Error> unsettled_draft_tokens() const;
  void step(SlotState to, std::uint64_t iteration) {
    state_ = to;
    iteration_ = iteration;
  }
  [[nodiscard]] Status check_tokens(const char* operation) const;
  [[nodiscard]] Status add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs = {});
  // Cuts off the last `count` draft tokens.
  void take_back(std::size_t count);
  [[nodiscard]] std::size_t certain_tokens() const { return sequence_.size() - draft_tokens_; }
  [[nodiscard]] std::size_t block_size() const { return sequence_.block_size(); }
  void offer_saves();
  void add_operation(bool is_load, BlockRange blocks);
  void add_operation(OperationPtr operation);
  // Tokens that the device blocks have room for.
  [[nodiscard]] std::size_t room() const {
    return grouped_ == nullptr ? device_blocks_.size() * block_size() : room_in_tables();
  }

  // --- of a model with layer groups ---
  struct Grouped {
    const CacheGroups* groups = nullptr;
    std::vector<std::vector<BlockId>> tables = {};  // by group; kNoBlock where it has none
    std::vector<std::size_t> released = {};         // by group: blocks from the first on that left the window
    std::size_t windows_saved = 0;                  // the boundary whose windows were offered last
    std::size_t kept_boundary = 0;                  // keep_boundary(); 0: none
  };
  [[nodiscard]] std::size_t blocks_in_tables() const;
  [[nodiscard]] std::size_t room_in_tables() const;
  // kNoBlock if the table has none there.
  [[nodiscard]] BlockId in_table(GroupBlock block) const;
  void offer_group_saves();
  // Offers the blocks that the table has, in runs.
  void offer_group_blocks(std::uint32_t group, BlockRange blocks);
  void add_group_load();
  // The boundary that can be used if only the first `arrived` blocks of the staged load came.
  [[nodiscard]] std::size_t usable_of_load(std::size_t arrived) const noexcept;
  void clear_device_blocks();

  // Cuts saves that were not taken off at that block.
  void withdraw_saves_from(std::size_t block);
  // Memory for the fence that comes with a change: once the change is made, the fence must not be lost.
  void reserve_fence();
  // Fences the saves in flight that reach beyond that block.
  void fence_saves_from(std::size_t block);
  [[nodiscard]] bool is_taken(const Operation& operation) const { return operation.id.number < taken_below_; }
  // The index in in_flight_ of an operation that was taken.
  [[nodiscard]] Result<std::size_t> find(OperationId id, bool is_load) const;
  void remove_operation(std::size_t index);

  std::uint64_t serial_;
  TokenBlockSequence sequence_;
  std::vector<BlockId> device_blocks_;  // device_blocks_[i] holds block i of the sequence
  SlotState state_ = SlotState::initialized();
  std::uint64_t iteration_ = 0;       // the latest one
  std::size_t computed_ = 0;          // tokens
  std::size_t draft_tokens_ = 0;      // tokens at the end that may be taken back
  std::size_t known_at_start_;        // tokens: Prefilling until they are computed
  std::size_t next_to_save_ = 0;      // block; those before it were offered, or need not be
  std::unique_ptr<Grouped> grouped_;  // null for a model with one block table
  bool offers_cached_blocks_ = false;
  bool has_run_ = false;                 // since it was created or preempted
  bool load_fell_short_ = false;         // since it was created or preempted
  BlockRange staged_;                    // to be loaded, or being loaded
  SlotOperations pending_;               // not taken
  std::vector<OperationPtr> in_flight_;  // taken or not, by number
  OperationPtr in_step_save_;            // that is not settled
  std::uint32_t next_number_ = 0;
  std::uint32_t taken_below_ = 0;
};

// A slot whose device blocks belong to the engine, which says which blocks the request has and
// how far they are filled.
//
// In each iteration the scheduler says first what the last iterations computed (append_tokens, advance_computed_position),
// then the new device blocks, then the mark. A slot knows no other requests: SchedulerConnector checks that nobody else
// writes to its device blocks.
class ExternallyManagedDeviceSlot final : public Slot {
 public:
  // `serial` is OperationId::slot of its operations. Requires: a sequence with a token.
  ExternallyManagedDeviceSlot(std::uint64_t serial, TokenBlockSequence&& sequence, const CacheGroups* groups = nullptr)
      : Slot(serial, std::move(sequence), groups) {}

  // device_blocks()[i] holds block i of the sequence. Valid until blocks are appended or taken away. Empty in a model with
  // layer groups.
  [[nodiscard]] std::span<const BlockId> device_blocks() const { return device_blocks_; }
  // Appends all of them, of all groups. Allocates only if `out` has no room for num_device_blocks_allocated() more.
  void append_device_blocks(std::vector<BlockId>& out) const;
  [[nodiscard]] bool has_device_block(BlockId block) const;
  // The KV of so many more tokens is on the device: the engine computed them or, before the request first ran since it was
  // created or preempted, found them in its own cache. Not beyond the tokens or the device blocks of the request.
  [[nodiscard]] Status advance_computed_position(std::size_t num_tokens);
  // The engine computes the last tokens again, into the same blocks: something that they were computed from did not come.
  // Saves of those blocks that were not taken are withdrawn, the others are fenced; all are offered again. A staged load is
  // dropped, and the request has to be marked anew. Fails while a load is in flight.
  [[nodiscard]] Status retreat_computed_position(std::size_t num_tokens);
  // The engine's blocks for what comes after the blocks it gave before; may be more than the tokens need.
  [[nodiscard]] Status append_mutable_device_blocks(std::span<const BlockId> blocks);
  // Of a model with layer groups: for each group the blocks after those that it gave before; kNoBlock where a group that is
  // not full has none.
  [[nodiscard]] Status append_group_blocks(std::span<const std::span<const BlockId>> blocks);
  // The table of a group; see append_group_blocks().
  [[nodiscard]] std::span<const BlockId> group_table(std::uint32_t group) const { return grouped_->tables[group]; }
  // So many tokens are computed: blocks of sliding and chunked groups that no later token needs leave their tables, and are
  // appended to `out`. Saves in flight that read one are fenced.
  void release_skipped_blocks(std::size_t tokens, std::vector<BlockId>& out);
  // The engine takes all device blocks away: no token counts as computed, draft tokens are taken back, and the request can
  // be matched anew. Saves of those blocks are fenced. Fails while a load writes to them: wait for it, or finish.
  [[nodiscard]] Status preempt(std::uint64_t iteration);

 private:
  [[nodiscard, gnu::cold]] Unexpected<Error> computes_nothing() const;
  [[nodiscard, gnu::cold]] Unexpected<Error> beyond_end(std::size_t num_tokens, std::size_t end) const;
};

// --- inlined: called for every running request in every iteration, of hundreds in a few microseconds ---

inline Status Slot::check_step(SlotState to, std::uint64_t iteration) const {
  if (!is_legal(state_.kind(), to.kind())) {
    return illegal_step(to);
  }
  if (iteration < iteration_) {
    return earlier_iteration(iteration);
  }
  return {};
}

inline Status Slot::mark_as_prefilling(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::prefilling(), iteration));
  if (computed_ >= known_at_start_) {
    return wrong_phase();
  }
  staged_ = {};
  has_run_ = true;
  step(SlotState::prefilling(), iteration);
  return {};
}

inline Status Slot::mark_as_decoding(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::decoding(), iteration));
  if (computed_ < known_at_start_) {
    return wrong_phase();
  }
  step(SlotState::decoding(), iteration);
  return {};
}

inline Status Slot::mark_as_scheduled(std::uint64_t iteration) {
  if (state_.kind() == kOnboardStaged) {
    return mark_as_onboarding(iteration);
  }
  return computed_ < known_at_start_ ? mark_as_prefilling(iteration) : mark_as_decoding(iteration);
}

inline Status Slot::check_tokens(const char* operation) const {
  const SlotState::Kind kind = state_.kind();
  if (kind == kNotScheduled || kind == kPrefilling || kind == kDecoding) {
    return {};
  }
  return gets_no_tokens(operation);
}

inline Status Slot::append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) {
  CAIRN_TRY(check_tokens("append_tokens"));
  if (draft_tokens_ != 0) {
    return unsettled_draft_tokens();
  }
  CAIRN_TRY(add_tokens(tokens, runs));
  if (!has_run_) {
    known_at_start_ = sequence_.size();
  }
  return {};
}

inline void Slot::take_pending_operations(SlotOperations& out) noexcept {
  out.clear();
  if (!pending_.empty()) {  // most steps have none
    taken_below_ = next_number_;
    std::swap(out, pending_);
  }
}

inline void Slot::offer_saves() {
  if (grouped_ != nullptr) {
    offer_group_saves();
    return;
  }
  const std::size_t tokens = std::min(computed_, certain_tokens());
  if (tokens >= (next_to_save_ + 1) * block_size()) {
    const std::size_t end =
        std::min(tokens / block_size(), sequence_.block_count());  // keys of the engine may come later
    if (end > next_to_save_) {
      add_operation(false, {next_to_save_, end});
      next_to_save_ = end;
    }
  }
}

inline Status ExternallyManagedDeviceSlot::advance_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return computes_nothing();
  }
  std::size_t end = std::min(sequence_.size(), room());
  if (!has_run_) {
    end = std::min(end, sequence_.size() - 1);  // one token stays to be computed
  }
  if (kind == kOnboardStaged) {
    end = std::min(end, staged_.begin * block_size());
  }
  if (num_tokens > end - computed_) {
    return beyond_end(num_tokens, end);
  }
  computed_ += num_tokens;
  if (has_run_) {
    offer_saves();
  } else if (!offers_cached_blocks_) {
    next_to_save_ = std::max(next_to_save_, computed_ / block_size());
  }
  return {};
}

}  // namespace cairn
