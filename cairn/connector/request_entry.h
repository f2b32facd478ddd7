// RequestEntry: what the scheduler's side knows of one request: its slot, and what the engine said of it.
//
// Its functions check what the engine says of one request against what was scheduled and loaded before. What concerns other
// requests, tiers or workers is SchedulerConnector's.
//
// Thread safety: none; the scheduler's thread alone.
// Ownership: a RequestTable.
// Errors: the engine's account of the request cannot be true. The slot may have changed then: the caller abandons the
// request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_counts.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/slot.h"

namespace cairn {

struct RequestEntry {
  using Scheduled = SchedulerConnector::Scheduled;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  // `groups`: as of ExternallyManagedDeviceSlot.
  RequestEntry(RequestHandle name, TokenBlockSequence&& sequence, const CacheGroups* groups)
      : handle(name), slot(static_cast<std::uint64_t>(name), std::move(sequence), groups) {}

  // --- every iteration ---
  RequestHandle handle;
  std::uint64_t scheduled_in = kNever;  // the latest iteration
  bool is_abandoned = false;            // invalid input: it continues without a cache
  bool load_fell_short = false;         // and the engine has not scheduled the request since
  bool has_operations = false;          // in the list of requests with pending operations
  bool drafts_are_aside = false;        // draft_tokens are not in the slot
  bool may_count = false;               // `counting` may have something to count when the request runs
  bool wants_load = false;              // in the next metadata
  bool computes_beside_load = false;    // it runs while it is loaded (LoadMode::kInStep)
  // Tokens whose KV can be on the device when the next iteration begins: what iterations scheduled so far or, before the
  // first one, what the engine said to have in its own cache.
  std::size_t computable = 0;
  std::vector<Token> draft_tokens = {};  // of the latest iteration, not settled
  ExternallyManagedDeviceSlot slot;
  // While it is in the list of requests with an in-step save: when that is withdrawn if nobody said whether it was computed.
  std::optional<TimePoint> in_step_until = {};

  // --- its load ---
  std::size_t staged_blocks = 0;        // of a load that is pending or in flight
  std::uint32_t staged_on_disk = 0;     // of those, or of the latest match
  std::size_t matched_at = 0;           // the engine's own tokens at the latest match
  std::vector<BlockId> loading = {};    // in a model with layer groups: the device blocks of its load
  std::uint32_t times_put_off = 0;      // in a row
  std::vector<Token> late_tokens = {};  // that it got while it is loaded; the slot takes them afterwards
  std::vector<MmRun> late_runs = {};    // among them
  EngineBlockNames late_names = {};     // of blocks of late_tokens, if the engine gives keys
  std::uint64_t fence = 0;              // KvBlockManager::fences() when it was added

  // --- how its blocks are kept; see NewRequest ---
  std::uint32_t priority = 0;
  std::uint32_t priority_ms = 0;
  std::uint32_t time_to_live_ms = 0;
  TenantId tenant = kDefaultTenant;
  RetentionHint hint = {};
  RequestEnding ending = RequestEnding::kUnknown;  // of a finished request
  std::size_t uses_counted = 0;  // blocks of its sequence, from the first on, that it was counted as a use of

  const RequestId* id = nullptr;  // the key of its entry in the RequestTable
  RequestCounts counting = {};    // of its tokens

  [[nodiscard]] std::size_t block_size() const { return slot.sequence().block_size(); }
  [[nodiscard]] std::size_t most_computed() const { return std::max(computable, slot.computed_tokens()); }
  // Tokens whose KV is on the device if the iterations so far are computed; draft tokens count once they are settled.
  [[nodiscard]] std::size_t tokens_on_device() const {
    return std::min(most_computed(), slot.sequence().size() - (drafts_are_aside ? 0 : draft_tokens.size()));
  }
  // Of `count` more blocks, those whose tokens are in the engine's own cache: other requests may have them too.
  [[nodiscard]] std::size_t shared_blocks(std::size_t count, std::size_t local_tokens) const {
    const std::size_t local = local_tokens / block_size();
    return std::min(count, local - std::min(local, slot.num_device_blocks_allocated()));
  }

  // Whether the request may get `blocks` more device blocks, with so many tokens in the engine's cache and to be loaded.
  [[nodiscard]] Status check_allocated(std::size_t blocks, std::size_t local_tokens, std::size_t loaded_tokens) const;
  // The same in a model with layer groups. `targets` gets the device blocks that the load fills.
  [[nodiscard]] Status check_allocated(const CacheGroups& groups, std::span<const std::span<const BlockId>> blocks,
                                       std::size_t local_tokens, std::size_t loaded_tokens,
                                       std::vector<BlockId>& targets) const;
  [[nodiscard]] Status set_computed(std::size_t computed_tokens);
  // Accepted draft tokens that are not in the slot are appended to `kept`.
  [[nodiscard]] Status settle_drafts(std::size_t accepted, std::vector<Token>& kept);
  // Remembers what the iteration computes. `tokens`: that the request has in it, draft tokens included.
  void note_scheduled(const Scheduled& scheduled, std::size_t tokens);
  // A step of a request that is loaded meanwhile, before and after its new blocks: the slot takes no tokens until the
  // load has ended.
  [[nodiscard]] Status begin_step_beside_load(const Scheduled& scheduled);
  void end_step_beside_load(const Scheduled& scheduled);
  // The load has ended: gives the slot the tokens of the iterations that ran meanwhile. False if there is no memory or
  // the tokens are invalid.
  [[nodiscard]] bool catch_up(std::uint64_t iteration);

  [[nodiscard]] Unexpected<Error> never_scheduled(std::size_t computed_tokens) const;

 private:
  [[nodiscard]] Status check_tokens(std::size_t room, std::size_t local_tokens, std::size_t loaded_tokens) const;
  [[nodiscard]] Status check_late_runs(const Scheduled& scheduled) const;
};

}  // namespace cairn
