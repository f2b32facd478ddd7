// SchedulerConnector: an iteration: from what the engine schedules to its metadata and to what is loaded and saved.
#include <algorithm>
#include <limits>
#include <new>
#include <utility>
#include <variant>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/scheduler_impl.h"

namespace cairn {

namespace {

constexpr std::size_t kRequestsAhead = 4;  // requests whose slots are on their way to the cache

// For one more operation of a request.
void make_room_for(auto& told, auto& batch, RequestEntry& entry) {
  make_room(told, told.size() + 1);
  make_room(batch, batch.size() + 1);
  make_room(entry.operations, entry.operations.size() + 1);
}

}  // namespace

Status SchedulerConnector::Impl::build(const Iteration& iteration, std::vector<std::byte>& metadata) {
  const std::uint64_t number = iteration.number;
  if (iteration_ && number <= *iteration_) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("iteration ", number, " comes after iteration ", *iteration_, "; give numbers that grow"));
  }
  refused_.clear();
  std::swap(running_, running_before_);
  running_.clear();
  running_on_ = 0;
  try {
    build_all(iteration, metadata);
  } catch (const std::bad_alloc&) {
    lose_iteration(iteration);
    return fail(ErrorCode::kExhausted,
                str_cat("no memory for iteration ", number,
                        "; the requests that it schedules go on without a cache; build it again"));
  }
  iteration_ = number;
  return {};
}

// What its requests were told is done in part, and cannot be told again. Loads, saves and fences stay where they are, for the
// next iteration that is built.
void SchedulerConnector::Impl::lose_iteration(const Iteration& iteration) {
  for (const Scheduled& scheduled : iteration.scheduled) {
    if (RequestEntry* const entry = table_.get(scheduled.request)) {
      entry->is_given_up = true;
      if (entry->wants_load) {
        drop_load(*entry, entry->slot->device_blocks());
      }
    }
  }
  running_.clear();
  std::swap(running_, running_before_);
  std::erase_if(with_operations_, [this](RequestHandle request) {
    const RequestEntry* const entry = table_.get(request);
    return entry == nullptr || !entry->has_operations;
  });
}

void SchedulerConnector::Impl::build_all(const Iteration& iteration, std::vector<std::byte>& metadata) {
  const std::uint64_t number = iteration.number;
  running_.reserve(iteration.scheduled.size());
  for (const RequestHandle request : iteration.preempted) {
    preempt(request, number);
  }
  check_new_tables();
  for (std::size_t i = 0; i < iteration.scheduled.size(); ++i) {
    if (i + kRequestsAhead < iteration.scheduled.size()) {
      table_.prefetch(iteration.scheduled[i + kRequestsAhead].request);
    }
    schedule(iteration.scheduled[i], number);
  }
  if (running_on_ < running_before_.size()) {
    pass_over(number);
  }
  begin_loads(number);
  for (const RequestHandle request : with_operations_) {
    if (RequestEntry* const entry = table_.get(request)) {
      collect(*entry);
    }
  }
  with_operations_.clear();
  metadata_.iteration = number;
  metadata_.encode(metadata);
  hand_over(number);
}

void SchedulerConnector::Impl::preempt(RequestHandle request, std::uint64_t number) {
  RequestEntry* const entry = table_.get(request);
  if (entry == nullptr) {
    refused_.push_back({request, std::move(unknown_request(request)).error().to_error()});
    return;
  }
  remember_blocks(*entry);
  if (SlotStatus preempted = entry->slot->preempt(number); !preempted) {
    refused_.push_back({request, preempted.error().to_error()});
    return;
  }
  device_use_.remove(had_blocks_);
  entry->computable = 0;
  if (entry->wants_load) {
    drop_load(*entry, had_blocks_);
  }
  entry->guesses_are_aside = !entry->guesses.empty();
  entry->fell_short = false;
  entry->put_off = 0;
  note_operations(*entry);
}

// What allocated() was told since the last iteration, now that the preemptions are known.
void SchedulerConnector::Impl::check_new_tables() {
  for (const NewBlocks& each : unchecked_) {
    RequestEntry* const entry = table_.get(each.request);
    if (entry == nullptr || entry->is_given_up || each.first >= entry->slot->num_device_blocks_allocated()) {
      continue;  // it is gone, or was preempted
    }
    if (SlotStatus checked = check_table(*entry, each.first, each.shared); !checked) {
      give_up(*entry, checked.error().to_error());
    }
  }
  unchecked_.clear();
}

// The blocks for it are there, and it will not be begun.
void SchedulerConnector::Impl::drop_load(RequestEntry& entry, std::span<const BlockId> blocks) {
  const auto place = std::ranges::find(to_load_, entry.handle);
  CAIRN_CHECK(place != to_load_.end(), "a load that is wanted is in the list");
  to_load_.erase(place);
  loading_blocks_ -= entry.staged_blocks;
  device_use_.end_load(blocks.subspan(entry.matched_at / block_size_, entry.staged_blocks));
  entry.wants_load = false;
  entry.computes_beside = false;
  entry.late_tokens.clear();
  entry.late_runs.clear();
}

void SchedulerConnector::Impl::schedule(const Scheduled& scheduled, std::uint64_t number) {
  RequestEntry* const entry = table_.get(scheduled.request);
  if (entry == nullptr) {
    refused_.push_back({scheduled.request, std::move(unknown_request(scheduled.request)).error().to_error()});
    return;
  }
  if (entry->is_given_up) {
    return;
  }
  const Kind kind = entry->slot->state().kind();
  const bool is_loaded = entry->wants_load || kind == Kind::kOnboarding;
  if (SlotStatus stepped = is_loaded ? step_beside_load(*entry, scheduled, number) : step(*entry, scheduled, number);
      !stepped) {
    give_up(*entry, stepped.error().to_error());
    return;
  }
  running_on_ += entry->scheduled_in == iteration_ ? 1 : 0;
  entry->scheduled_in = number;
  running_.push_back(entry->handle);
  note_operations(*entry);
}

// What the engine told of it and what is known of it do not go together: nobody knows any more which block holds what.
void SchedulerConnector::Impl::give_up(RequestEntry& entry, Error error) {
  entry.is_given_up = true;
  if (entry.wants_load) {
    drop_load(entry, entry.slot->device_blocks());
  }
  error.message += "; the request goes on without a cache";
  refused_.push_back({entry.handle, std::move(error)});
  note_operations(entry);
}

SlotStatus SchedulerConnector::Impl::step(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number) {
  if (entry.scheduled_in == number) {
    return invalid_operation(ErrorCode::kInvalidArgument, "it stands in the iteration twice");
  }
  ExternallyManagedDeviceSlot& slot = *entry.slot;
  const bool only_computes = slot.state().kind() != Kind::kOnboardStaged && entry.guesses.empty() &&
                             scheduled.accepted_guesses == 0 && scheduled.new_blocks.empty();
  if (!only_computes) {
    if (SlotStatus prepared = prepare(entry, scheduled, number); !prepared) {
      return prepared;
    }
  }
  if (!scheduled.new_tokens.empty()) {
    if (SlotStatus appended = slot.append_tokens(scheduled.new_tokens, scheduled.new_runs); !appended) {
      return appended;
    }
  } else if (!scheduled.new_runs.empty()) {
    return invalid_operation(ErrorCode::kInvalidArgument,
                             "new_runs come without new_tokens; give the placeholder tokens "
                             "of the items with them");
  }
  if (SlotStatus set = set_computed(entry, scheduled.computed_tokens); !set) {
    return set;
  }
  if (SlotStatus marked = slot.mark_as_scheduled(number); !marked) {
    return marked;
  }
  note_scheduled(entry, scheduled, slot.sequence().size() + scheduled.guesses.size());
  if (!scheduled.guesses.empty()) {
    entry.guesses.assign(scheduled.guesses.begin(), scheduled.guesses.end());
    return slot.append_speculative_tokens(scheduled.guesses);
  }
  return SlotStatus();
}

// `tokens`: that the request has in the iteration, guesses included.
void SchedulerConnector::Impl::note_scheduled(RequestEntry& entry, const Scheduled& scheduled, std::size_t tokens) {
  const std::size_t computed = scheduled.computed_tokens;
  entry.computable =
      scheduled.scheduled_tokens == 0
          ? tokens
          : computed + std::min(scheduled.scheduled_tokens, std::numeric_limits<std::size_t>::max() - computed);
}

Unexpected<SlotError> SchedulerConnector::Impl::never_scheduled(const RequestEntry& entry,
                                                                std::size_t computed_tokens) {
  return invalid_operation(
      ErrorCode::kInvalidArgument, computed_tokens, " tokens of request ", entry.id.to_string(),
      " are said to be computed, but at most ", most_computed(entry),
      " can be when this iteration begins: what earlier iterations scheduled, what was loaded, and "
      "what match() or allocated() said of the engine's own cache; computed_tokens counts before "
      "the iteration, not after it");
}

SlotStatus SchedulerConnector::Impl::take_new_blocks(RequestEntry& entry, std::span<const BlockId> blocks,
                                                     std::size_t local_tokens) {
  const std::size_t first = entry.slot->num_device_blocks_allocated();
  const std::size_t shared = shared_blocks(entry, blocks.size(), local_tokens);
  if (SlotStatus added = add_blocks(entry, blocks, local_tokens); !added) {
    return added;
  }
  return check_table(entry, first, shared);
}

// What few requests have in an iteration, before what all have.
SlotStatus SchedulerConnector::Impl::prepare(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number) {
  ExternallyManagedDeviceSlot& slot = *entry.slot;
  if (slot.state().kind() == Kind::kOnboardStaged) {  // the engine computes instead of loading
    if (SlotStatus dropped = slot.mark_as_not_scheduled(number); !dropped) {
      return dropped;
    }
  }
  if (!entry.guesses.empty() || scheduled.accepted_guesses != 0) {
    std::vector<Token> kept;
    if (SlotStatus settled = settle_guesses(entry, scheduled.accepted_guesses, kept); !settled) {
      return settled;
    }
    if (SlotStatus appended = slot.append_tokens(kept); !appended) {
      return appended;
    }
  }
  // Before it first runs, what is computed is in the engine's own cache.
  const std::size_t local = slot.has_run() ? 0 : std::min(scheduled.computed_tokens, entry.computable);
  return take_new_blocks(entry, scheduled.new_blocks, local);
}

SlotStatus SchedulerConnector::Impl::set_computed(RequestEntry& entry, std::size_t computed_tokens) {
  ExternallyManagedDeviceSlot& slot = *entry.slot;
  const std::size_t before = slot.computed_tokens();
  if (computed_tokens < before) {
    entry.fell_short = false;
    return slot.retreat_computed_position(before - computed_tokens);
  }
  if (std::exchange(entry.fell_short, false) && computed_tokens > before) {
    return invalid_operation(ErrorCode::kFailedPrecondition, computed_tokens,
                             " tokens are said to be computed, but its load brought it to ", before,
                             " only; compute the rest again");
  }
  if (computed_tokens > most_computed(entry)) {
    return never_scheduled(entry, computed_tokens);
  }
  return computed_tokens > before ? slot.advance_computed_position(computed_tokens - before) : SlotStatus();
}

// The slot has them, or they are aside: a preemption took them back, or they were made beside a load. Then those that are
// accepted are tokens as any others, and go to `kept`.
SlotStatus SchedulerConnector::Impl::settle_guesses(RequestEntry& entry, std::size_t accepted,
                                                    std::vector<Token>& kept) {
  if (accepted > entry.guesses.size()) {
    return invalid_operation(ErrorCode::kOutOfRange, accepted, " of ", entry.guesses.size(),
                             " guesses cannot be accepted");
  }
  entry.computable -= std::min(entry.computable, entry.guesses.size() - accepted);
  if (!entry.guesses_are_aside) {
    entry.guesses.clear();
    return entry.slot->settle_speculation(accepted);
  }
  kept.insert(kept.end(), entry.guesses.begin(), entry.guesses.begin() + static_cast<std::ptrdiff_t>(accepted));
  entry.guesses.clear();
  entry.guesses_are_aside = false;
  return SlotStatus();
}

// The slot takes the tokens later: what is wrong with their runs is found now.
SlotStatus SchedulerConnector::Impl::check_late_runs(const RequestEntry& entry, const Scheduled& scheduled) {
  if (scheduled.new_runs.empty()) {
    return SlotStatus();
  }
  const std::size_t first = entry.slot->sequence().size() + entry.late_tokens.size();
  const std::size_t end = first + scheduled.new_tokens.size();
  std::vector<MmRun> runs(scheduled.new_runs.begin(), scheduled.new_runs.end());
  std::ranges::sort(runs, {}, &MmRun::offset);
  if (Status checked = check_mm_runs(runs); !checked) {
    return invalid_operation(Error(checked.error()));
  }
  if (runs.front().offset < first || runs.back().end() > end) {
    return invalid_operation(ErrorCode::kInvalidArgument, "multimodal runs from token ", runs.front().offset, " to ",
                             runs.back().end(), " come with tokens ", first, " to ", end,
                             "; give runs inside the tokens they come with");
  }
  return SlotStatus();
}

// It computes in the iteration that its load begins in, or in one before that is known to be over. The slot takes no
// tokens meanwhile: they wait beside it.
SlotStatus SchedulerConnector::Impl::step_beside_load(RequestEntry& entry, const Scheduled& scheduled,
                                                      std::uint64_t number) {
  if (entry.scheduled_in == number) {
    return invalid_operation(ErrorCode::kInvalidArgument, "it stands in the iteration twice");
  }
  if (load_mode_ == LoadMode::kAsync || (!entry.wants_load && !entry.computes_beside)) {
    return invalid_operation(ErrorCode::kFailedPrecondition,
                             "its load is under way; schedule it when take_results() says that it is over");
  }
  ExternallyManagedDeviceSlot& slot = *entry.slot;
  const std::size_t loaded = slot.computed_tokens() + entry.staged_blocks * block_size_;
  if (entry.wants_load ? scheduled.computed_tokens != loaded : scheduled.computed_tokens < loaded) {
    return invalid_operation(ErrorCode::kInvalidArgument, scheduled.computed_tokens,
                             " tokens are said to be there, but its load brings ", loaded);
  }
  if (SlotStatus settled = settle_guesses(entry, scheduled.accepted_guesses, entry.late_tokens); !settled) {
    return settled;
  }
  if (!entry.wants_load && scheduled.computed_tokens > entry.computable) {
    return never_scheduled(entry, scheduled.computed_tokens);
  }
  if (SlotStatus checked = check_late_runs(entry, scheduled); !checked) {
    return checked;
  }
  if (SlotStatus taken = take_new_blocks(entry, scheduled.new_blocks, 0); !taken) {
    return taken;
  }
  entry.late_tokens.insert(entry.late_tokens.end(), scheduled.new_tokens.begin(), scheduled.new_tokens.end());
  entry.late_runs.insert(entry.late_runs.end(), scheduled.new_runs.begin(), scheduled.new_runs.end());
  note_scheduled(entry, scheduled, slot.sequence().size() + entry.late_tokens.size() + scheduled.guesses.size());
  entry.guesses.assign(scheduled.guesses.begin(), scheduled.guesses.end());
  entry.guesses_are_aside = !entry.guesses.empty();
  entry.computes_beside = true;
  return SlotStatus();
}

// Those that ran in the last iteration and do not in this one.
void SchedulerConnector::Impl::pass_over(std::uint64_t number) {
  for (const RequestHandle request : running_before_) {
    RequestEntry* const entry = table_.get(request);
    if (entry == nullptr || entry->scheduled_in == number) {
      continue;
    }
    const Kind kind = entry->slot->state().kind();
    if (kind == Kind::kPrefilling || kind == Kind::kDecoding) {
      CAIRN_CHECK(entry->slot->mark_as_not_scheduled(number).has_value(), "what runs can be passed over");
    }
  }
}

void SchedulerConnector::Impl::begin_loads(std::uint64_t number) {
  std::size_t begun = 0;
  try {
    for (const RequestHandle request : to_load_) {
      RequestEntry& entry = *table_.get(request);
      CAIRN_CHECK(entry.slot->mark_as_onboarding(number).has_value(), "what was allocated can be loaded");
      entry.wants_load = false;
      ++begun;
      note_operations(entry);
      collect(entry);  // now: loads are begun in the order of this list
    }
  } catch (...) {
    to_load_.erase(to_load_.begin(), to_load_.begin() + static_cast<std::ptrdiff_t>(begun));
    throw;
  }
  to_load_.clear();
}

void SchedulerConnector::Impl::collect(RequestEntry& entry) {
  entry.has_operations = false;
  std::vector<SlotOperation> operations = entry.slot->take_pending_operations();
  auto next = operations.begin();
  try {
    for (; next != operations.end(); ++next) {
      std::visit([&](auto& given) { give_out(entry, std::move(given)); }, *next);
    }
  } catch (...) {
    operations.erase(operations.begin(), next);
    entry.slot->put_back(std::move(operations));
    entry.has_operations = true;
    throw;
  }
}

// Each gives the operation out whole, or leaves it as it was if there is no memory for it.

void SchedulerConnector::Impl::give_out(RequestEntry& entry, OnboardOperation&& load) {
  const auto operation = std::make_shared<Operation>();
  operation->request = entry.handle;
  operation->id = load.id;
  operation->is_load = true;
  IterationMetadata::Load told{
      .id = load.id, .request = entry.id, .in_step = entry.computes_beside, .blocks = load.slots};
  make_room_for(metadata_.loads, batch_.loads, entry);
  operation->slots = std::move(load.slots);
  metadata_.loads.push_back(std::move(told));
  entry.operations.push_back(operation);
  ++under_way_;
  batch_.loads.push_back({operation, std::move(load.keys)});
}

void SchedulerConnector::Impl::give_out(RequestEntry& entry, OffloadOperation&& save) {
  if (!save_to_) {
    CAIRN_CHECK(entry.slot->offload_done(save.id).has_value(), "a save that was taken can be over");
    return;
  }
  const TokenBlockSequence& sequence = entry.slot->sequence();
  const std::span<const BlockHash> hashes = sequence.block_hashes().subspan(save.first_block, save.keys.size());
  const auto operation = std::make_shared<Operation>();
  operation->request = entry.handle;
  operation->id = save.id;
  IterationMetadata::Save told{.id = save.id, .request = entry.id, .blocks = save.slots};
  std::vector<BlockHash> token_hashes(hashes.begin(), hashes.end());
  make_room_for(metadata_.saves, batch_.saves, entry);
  operation->slots = std::move(save.slots);
  metadata_.saves.push_back(std::move(told));
  entry.operations.push_back(operation);
  ++under_way_;
  batch_.saves.push_back(
      {.operation = operation,
       .keys = std::move(save.keys),
       .token_hashes = std::move(token_hashes),
       .parent = save.first_block > 0 ? sequence.keys()[save.first_block - 1].sequence_hash() : SequenceHash{0},
       .fence = entry.fence});
}

void SchedulerConnector::Impl::give_out(RequestEntry& entry, const CancelOperation& cancel) {
  const auto load = std::ranges::find(entry.operations, cancel.id, [](const OperationPtr& o) { return o->id; });
  if (load != entry.operations.end()) {
    batch_.cancelled.push_back(*load);
  }
}

// Each save once: its blocks may be another's by the next time.
void SchedulerConnector::Impl::give_out(RequestEntry& entry, const FenceOperation& fence) {
  for (const OperationId id : fence.saves) {
    const auto save = std::ranges::find(entry.operations, id, [](const OperationPtr& o) { return o->id; });
    if (save == entry.operations.end() || (*save)->is_over || (*save)->is_fenced) {
      continue;
    }
    metadata_.fences.push_back({.save = id, .blocks = (*save)->slots});
    (*save)->is_fenced = true;
  }
}

void SchedulerConnector::Impl::hand_over(std::uint64_t number) {
  if (!batch_.empty()) {
    const TimePoint now = clock_.now();
    batch_.iteration = number;
    batch_.saves_after = iteration_ ? StepMark::computed(*iteration_) : StepMark();
    batch_.loads_after = StepMark::begun(number);
    batch_.save_deadline = deadline_after(now, save_deadline_);
    batch_.load_deadline = deadline_after(now, load_deadline_);
    runner_->run(std::move(batch_));
    batch_ = {};
  }
  metadata_.loads.clear();
  metadata_.saves.clear();
  metadata_.fences.clear();
}

}  // namespace cairn
