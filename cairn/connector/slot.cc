#include "cairn/connector/slot.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/refuse.h"
#include "cairn/onboard/group_prefix.h"

namespace cairn {

Slot::Slot(std::uint64_t serial, TokenBlockSequence&& sequence, const CacheGroups* groups)
    : serial_(serial), sequence_(std::move(sequence)), known_at_start_(sequence_.size()) {
  CAIRN_CHECK(!sequence_.empty(), "a request has a token");
  if (groups != nullptr) {
    grouped_ = std::make_unique<Grouped>();
    grouped_->groups = groups;
    grouped_->tables.resize(groups->size());
    grouped_->released.resize(groups->size());
  }
}

Unexpected<Error> Slot::illegal_step(SlotState to) const {
  return refuse(ErrorCode::kFailedPrecondition, "a slot cannot go from ", state_.to_string(), " to ", to.to_string());
}

Unexpected<Error> Slot::earlier_iteration(std::uint64_t iteration) const {
  return refuse(ErrorCode::kInvalidArgument, "iteration ", iteration, " follows iteration ", iteration_,
                "; iteration numbers never decrease");
}

Unexpected<Error> Slot::wrong_phase() const {
  return computed_ < known_at_start_ ? refuse(ErrorCode::kFailedPrecondition, "only ", computed_, " of ",
                                              known_at_start_, " tokens are computed; mark it as prefilling")
                                     : refuse(ErrorCode::kFailedPrecondition, "all ", known_at_start_,
                                              " tokens are computed; mark it as decoding");
}

Unexpected<Error> Slot::gets_no_tokens(const char* operation) const {
  return refuse(ErrorCode::kFailedPrecondition, operation, ": a slot that is ", to_string(state_.kind()),
                " gets no tokens");
}

Unexpected<Error> Slot::unsettled_draft_tokens() const {
  return refuse(ErrorCode::kFailedPrecondition, draft_tokens_,
                " draft tokens are not settled; say first how many of them were accepted");
}

// --- marks ---

Status Slot::mark_as_onboarding(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::onboarding(iteration), iteration));
  const auto has_blocks = [this] {
    const std::vector<GroupBlock> wanted = blocks_to_load(*grouped_->groups, staged_.begin, staged_.end);
    return std::ranges::all_of(wanted, [this](const GroupBlock& block) { return in_table(block) != kNoBlock; });
  };
  if (computed_ != staged_.begin * block_size() || room() < staged_.end * block_size() ||
      (grouped_ != nullptr && !has_blocks())) {
    return refuse(ErrorCode::kFailedPrecondition, "blocks ", staged_.begin, " to ", staged_.end,
                  " are to be loaded, but the request has ", num_device_blocks_allocated(), " device blocks with ",
                  computed_, " tokens computed; append the device blocks and count the engine's own tokens first");
  }
  if (grouped_ != nullptr) {
    add_group_load();
  } else {
    add_operation(true, staged_);
  }
  step(SlotState::onboarding(iteration), iteration);
  return {};
}

Status Slot::mark_as_not_scheduled(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::not_scheduled(), iteration));
  if (state_.kind() == kOnboarding) {
    return refuse(ErrorCode::kFailedPrecondition,
                  "a load writes to its device blocks; wait until it has ended, or finish the request");
  }
  staged_ = {};
  step(SlotState::not_scheduled(), iteration);
  return {};
}

Status Slot::mark_as_finished(std::uint64_t iteration) {
  // A load that was not taken has not begun: it is withdrawn. One that was taken is waited for.
  const auto load = std::ranges::find_if(in_flight_, [](const OperationPtr& each) { return each->is_load; });
  const bool withdraws = load != in_flight_.end() && !is_taken(**load);
  const SlotState to = in_flight_.size() == (withdraws ? 1U : 0U) ? SlotState::finished() : SlotState::finishing();
  CAIRN_TRY(check_step(to, iteration));
  if (withdraws) {
    std::erase(pending_.start, *load);
    in_flight_.erase(load);
  } else if (load != in_flight_.end()) {
    pending_.cancel.push_back(*load);
  }
  take_back(draft_tokens_);
  staged_ = {};
  if (to == SlotState::finished()) {
    clear_device_blocks();
  }
  step(to, iteration);
  return {};
}

// --- matching ---

std::span<const BlockKey> Slot::keys_to_match(std::size_t local_tokens) const {
  const std::size_t begin = local_tokens / block_size();
  // The last token is always computed.
  const std::size_t end = std::min((certain_tokens() - 1) / block_size(), sequence_.block_count());
  if (local_tokens % block_size() != 0 || local_tokens < computed_ || begin >= end || load_fell_short_ ||
      (grouped_ != nullptr && begin % grouped_->groups->alignment() != 0)) {
    return {};
  }
  return sequence_.keys().subspan(begin, end - begin);
}

Status Slot::acquire_all_local_matches(std::size_t local_tokens, const Result<std::size_t>& found) {
  const std::size_t blocks = found ? *found : 0;
  const SlotState staged = SlotState::onboard_staged(blocks * block_size());
  CAIRN_TRY(check_step(staged, iteration_));
  if (!found) {
    return Unexpected(found.error());
  }
  if (const std::size_t wanted = keys_to_match(local_tokens).size(); blocks > wanted) {
    return refuse(ErrorCode::kOutOfRange, blocks, " blocks were found, but only ", wanted, " were looked up");
  }
  if (blocks > 0) {
    const std::size_t begin = local_tokens / block_size();
    staged_ = {begin, begin + blocks};
    state_ = staged;
  } else if (state_.kind() == kOnboardStaged) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return {};
}

// --- tokens ---

Status Slot::add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) {
  if (tokens.size() == 1 && runs.empty()) {  // as in most iterations
    CAIRN_TRY(sequence_.append(tokens.front()));
  } else {
    CAIRN_TRY(sequence_.extend(tokens, runs));
  }
  return {};
}

Status Slot::append_block_names(const EngineBlockNames& names) {
  const std::span<const BlockKey> keys = names.keys;
  if (sequence_.block_count() + keys.size() > certain_tokens() / block_size()) {
    return refuse(ErrorCode::kOutOfRange, keys.size(), " keys after ", sequence_.block_count(), " for ",
                  certain_tokens(), " tokens in blocks of ", block_size(), "; give one for each full block, once");
  }
  CAIRN_TRY(sequence_.adopt(keys, names.event_hashes));
  if (has_run_) {
    offer_saves();
  }
  return {};
}

Status Slot::append_draft_tokens(std::span<const Token> tokens) {
  CAIRN_TRY(check_tokens("append_draft_tokens"));
  if (!has_run_) {
    return refuse(ErrorCode::kFailedPrecondition, "a request that has not run has no draft tokens");
  }
  CAIRN_TRY(add_tokens(tokens));
  draft_tokens_ += tokens.size();
  return {};
}

Status Slot::settle_draft_tokens(std::size_t accepted) {
  if (accepted > draft_tokens_) {
    return refuse(ErrorCode::kOutOfRange, accepted, " of ", draft_tokens_, " draft tokens cannot be accepted");
  }
  take_back(draft_tokens_ - accepted);
  draft_tokens_ = 0;
  offer_saves();
  return {};
}

void Slot::take_back(std::size_t count) {
  CAIRN_CHECK(count <= draft_tokens_ && sequence_.unwind(count), "only draft tokens are taken back");
  draft_tokens_ -= count;
  computed_ = std::min(computed_, sequence_.size());
}

// --- in-step saves ---

bool Slot::offer_in_step_save(std::size_t tokens, std::size_t least_blocks) {
  const std::size_t end =
      std::min({std::min(tokens, certain_tokens()) / block_size(), sequence_.block_count(), device_blocks_.size()});
  if (end < next_to_save_ + least_blocks) {
    return false;
  }
  add_operation(false, {next_to_save_, end});
  in_step_save_ = in_flight_.back();
  in_step_save_->in_step = true;
  next_to_save_ = end;
  return true;
}

Slot::SettledSave Slot::settle_in_step_save(std::size_t tokens) noexcept {
  SettledSave settled{.save = std::exchange(in_step_save_, nullptr)};
  const std::size_t first = settled.save->first_block;
  if (!is_taken(*settled.save)) {  // the iteration was not built
    withdraw_saves_from(first);
    next_to_save_ = std::min(next_to_save_, first);
    return settled;
  }
  const std::size_t end = std::clamp(tokens / block_size(), first, settled.save->end_block());
  settled.confirmed = end - first;
  if (end < settled.save->end_block()) {
    next_to_save_ = std::min(next_to_save_, end);
  }
  return settled;
}

// --- operations ---

// Changes nothing if there is no memory for it.
void Slot::add_operation(bool is_load, BlockRange blocks) {
  auto operation = std::make_shared<Operation>();
  const auto keys = sequence_.keys().subspan(blocks.begin, blocks.size());
  const auto block_ids = std::span(device_blocks_).subspan(blocks.begin, blocks.size());
  operation->id = {serial_, next_number_};
  operation->is_load = is_load;
  operation->first_block = blocks.begin;
  operation->keys.assign(keys.begin(), keys.end());
  operation->block_ids.assign(block_ids.begin(), block_ids.end());
  if (!is_load) {
    const auto hashes = sequence_.block_hashes().subspan(blocks.begin, blocks.size());
    operation->token_hashes.assign(hashes.begin(), hashes.end());
    if (blocks.begin > 0) {
      operation->parent = sequence_.keys()[blocks.begin - 1];
    }
  }
  add_operation(std::move(operation));
}

void Slot::add_operation(OperationPtr operation) {
  pending_.start.push_back(operation);
  try {
    in_flight_.push_back(std::move(operation));
  } catch (...) {
    pending_.start.pop_back();
    throw;
  }
  ++next_number_;
}

void Slot::withdraw_saves_from(std::size_t block) {
  std::erase_if(pending_.start, [this, block](const OperationPtr& operation) {
    if (operation->is_load || operation->end_block() <= block) {
      return false;
    }
    const std::size_t kept = block > operation->first_block ? (block - operation->first_block) / operation->each : 0;
    operation->keys.resize(kept);
    operation->block_ids.resize(kept);
    operation->token_hashes.resize(kept);
    if (kept == 0) {
      std::erase(in_flight_, operation);
    }
    return kept == 0;
  });
}

void Slot::reserve_fence() { pending_.fence.reserve(pending_.fence.size() + in_flight_.size()); }

void Slot::fence_saves_from(std::size_t block) {
  for (const OperationPtr& save : in_flight_) {
    if (save->end_block() > block) {
      pending_.fence.push_back(save);
    }
  }
}

Result<std::size_t> Slot::find(OperationId id, bool is_load) const {
  const auto found = std::ranges::find(in_flight_, id, [](const OperationPtr& each) { return each->id; });
  if (found == in_flight_.end() || (*found)->is_load != is_load || !is_taken(**found)) {
    return refuse(ErrorCode::kNotFound, is_load ? "load " : "save ", id.slot, '.', id.number,
                  " is not in flight in slot ", serial_);
  }
  return static_cast<std::size_t>(found - in_flight_.begin());
}

void Slot::remove_operation(std::size_t index) {
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
  if (in_flight_.empty() && state_ == SlotState::finishing()) {
    clear_device_blocks();
    state_ = SlotState::finished();
  }
}

Status Slot::onboard_done(OperationId id, std::size_t arrived) {
  CAIRN_TRY_ASSIGN(const std::size_t index, find(id, true));
  if (state_.kind() == kOnboarding) {
    const std::size_t wanted = in_flight_[index]->block_ids.size();
    if (arrived > wanted) {
      return refuse(ErrorCode::kOutOfRange, arrived, " of ", wanted, " blocks cannot have been loaded");
    }
    const std::size_t end = grouped_ == nullptr ? staged_.begin + arrived
                            : arrived == wanted ? staged_.end
                                                : usable_of_load(arrived);
    computed_ = end * block_size();
    next_to_save_ = std::max(next_to_save_, end);
    load_fell_short_ = end < staged_.end;
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  remove_operation(index);
  return {};
}

Status Slot::offload_done(OperationId id) {
  CAIRN_TRY_ASSIGN(const std::size_t index, find(id, false));
  remove_operation(index);
  return {};
}

// --- ExternallyManagedDeviceSlot ---

Unexpected<Error> ExternallyManagedDeviceSlot::computes_nothing() const {
  return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(state_.kind()), " computes nothing");
}

Unexpected<Error> ExternallyManagedDeviceSlot::beyond_end(std::size_t num_tokens, std::size_t end) const {
  return refuse(ErrorCode::kOutOfRange, num_tokens, " more tokens than ", computed_, " cannot be computed: of ",
                sequence_.size(), " tokens in ", num_device_blocks_allocated(), " device blocks at most ", end,
                " can be");
}

Status ExternallyManagedDeviceSlot::preempt(std::uint64_t iteration) {
  reserve_fence();
  CAIRN_TRY(mark_as_not_scheduled(iteration));
  fence_saves_from(0);
  take_back(draft_tokens_);
  clear_device_blocks();
  computed_ = 0;
  known_at_start_ = sequence_.size();
  next_to_save_ = 0;
  has_run_ = false;
  load_fell_short_ = false;
  return {};
}

Status ExternallyManagedDeviceSlot::retreat_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "cannot move the computed position back: the slot is ",
                  to_string(kind));
  }
  if (num_tokens > computed_) {
    return refuse(ErrorCode::kOutOfRange, "only ", computed_, " tokens are computed; ", num_tokens,
                  " cannot be computed again");
  }
  if (num_tokens == 0) {
    return {};
  }
  reserve_fence();
  computed_ -= num_tokens;
  const std::size_t block = computed_ / block_size();
  withdraw_saves_from(block);
  fence_saves_from(block);
  next_to_save_ = std::min(next_to_save_, block);
  if (grouped_ != nullptr) {
    grouped_->windows_saved = std::min(grouped_->windows_saved, block);
  }
  if (kind != kInitialized) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return {};
}

Status ExternallyManagedDeviceSlot::append_mutable_device_blocks(std::span<const BlockId> blocks) {
  if (state_.kind() == kFinishing || state_.kind() == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(state_.kind()),
                  " takes no device blocks");
  }
  if (std::ranges::find(blocks, kNoBlock) != blocks.end()) {
    return refuse(ErrorCode::kInvalidArgument, "block id ", index_of(kNoBlock), " names no device block");
  }
  device_blocks_.insert(device_blocks_.end(), blocks.begin(), blocks.end());
  return {};
}

Status ExternallyManagedDeviceSlot::append_group_blocks(std::span<const std::span<const BlockId>> blocks) {
  if (state_.kind() == kFinishing || state_.kind() == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(state_.kind()),
                  " takes no device blocks");
  }
  const CacheGroups& groups = *grouped_->groups;
  if (blocks.size() != groups.size()) {
    return refuse(ErrorCode::kInvalidArgument, blocks.size(), " lists of device blocks for ", groups.size(),
                  " layer groups; give one for each");
  }
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    if (groups[group].kind == GroupKind::kFull && std::ranges::find(blocks[group], kNoBlock) != blocks[group].end()) {
      return refuse(ErrorCode::kInvalidArgument, "group '", groups[group].name,
                    "' is full, and has a place without a device block; only other groups have such places");
    }
  }
  // All memory first.
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    std::vector<BlockId>& table = grouped_->tables[group];
    if (table.capacity() < table.size() + blocks[group].size()) {
      table.reserve(std::max(table.size() + blocks[group].size(), 2 * table.size()));
    }
  }
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    std::vector<BlockId>& table = grouped_->tables[group];
    table.insert(table.end(), blocks[group].begin(), blocks[group].end());
  }
  return {};
}

void ExternallyManagedDeviceSlot::append_device_blocks(std::vector<BlockId>& out) const {
  out.insert(out.end(), device_blocks_.begin(), device_blocks_.end());
  if (grouped_ != nullptr) {
    for (const std::vector<BlockId>& table : grouped_->tables) {
      std::ranges::copy_if(table, std::back_inserter(out), [](BlockId block) { return block != kNoBlock; });
    }
  }
}

bool ExternallyManagedDeviceSlot::has_device_block(BlockId block) const {
  const auto has = [block](std::span<const BlockId> table) { return std::ranges::find(table, block) != table.end(); };
  return has(device_blocks_) || (grouped_ != nullptr && std::ranges::any_of(grouped_->tables, has));
}

void ExternallyManagedDeviceSlot::release_skipped_blocks(std::size_t tokens, std::vector<BlockId>& out) {
  const CacheGroups& groups = *grouped_->groups;
  const auto end_of = [&](std::uint32_t group) {
    const bool has_window = groups[group].kind == GroupKind::kSliding || groups[group].kind == GroupKind::kChunked;
    return has_window ? std::min(groups.first_needed(group, tokens), grouped_->tables[group].size()) : 0;
  };
  // All memory first: what leaves a table must be fenced and reported.
  std::size_t leaving = 0;
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    leaving += std::max(end_of(group), grouped_->released[group]) - grouped_->released[group];
  }
  if (leaving == 0) {
    return;
  }
  reserve_fence();
  out.reserve(out.size() + leaving);
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    std::vector<BlockId>& table = grouped_->tables[group];
    const std::size_t first = grouped_->released[group];
    const std::size_t end = end_of(group);
    if (end <= first) {
      continue;
    }
    const std::size_t each = groups.each(group);
    for (const OperationPtr& save : in_flight_) {
      if (!save->is_load && save->group == group && save->first_block < end * each &&
          save->end_block() > first * each && std::ranges::find(pending_.fence, save) == pending_.fence.end()) {
        pending_.fence.push_back(save);
      }
    }
    for (std::size_t block = first; block < end; ++block) {
      if (table[block] != kNoBlock) {
        out.push_back(std::exchange(table[block], kNoBlock));
      }
    }
    grouped_->released[group] = end;
  }
}

// --- layer groups ---

std::size_t Slot::blocks_in_tables() const {
  std::size_t blocks = 0;
  for (const std::vector<BlockId>& table : grouped_->tables) {
    blocks += table.size();
  }
  return blocks;
}

std::size_t Slot::room_in_tables() const {
  std::size_t tokens = std::numeric_limits<std::size_t>::max();
  for (std::uint32_t group = 0; group < grouped_->groups->size(); ++group) {
    tokens = std::min(tokens, grouped_->tables[group].size() * (*grouped_->groups)[group].block_size);
  }
  return tokens;
}

BlockId Slot::in_table(GroupBlock block) const {
  const std::vector<BlockId>& table = grouped_->tables[block.group];
  return block.block < table.size() ? table[block.block] : kNoBlock;
}

void Slot::clear_device_blocks() {
  device_blocks_.clear();
  if (grouped_ != nullptr) {
    for (std::vector<BlockId>& table : grouped_->tables) {
      table.clear();
    }
    std::ranges::fill(grouped_->released, 0);
    grouped_->windows_saved = 0;
  }
}

void Slot::keep_boundary(std::size_t blocks) {
  if (grouped_ != nullptr) {
    grouped_->kept_boundary = blocks;
  }
}

// Saves end at boundaries: nobody can use what is between two of them.
void Slot::offer_group_saves() {
  const CacheGroups& groups = *grouped_->groups;
  const auto boundary_of = [&](std::size_t tokens) { return groups.boundary_before(tokens / block_size()); };
  const std::size_t begin = next_to_save_;
  const std::size_t end =
      std::min(boundary_of(std::min(computed_, certain_tokens())), groups.boundary_before(sequence_.block_count()));
  if (end <= begin) {
    return;
  }
  const auto passes = [begin, end](std::size_t boundary) { return begin < boundary && boundary <= end; };
  const std::size_t kept = grouped_->kept_boundary;
  const std::size_t prompt = boundary_of(known_at_start_ - 1);  // as far as the same prompt can be loaded
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    const std::size_t each = groups.each(group);
    switch (groups[group].kind) {
      case GroupKind::kFull:
        offer_group_blocks(group, {begin / each, end / each});
        break;
      case GroupKind::kSliding:
      case GroupKind::kChunked: {
        std::size_t saved = grouped_->windows_saved / each;
        for (const std::size_t boundary : {kept, prompt, end}) {  // in increasing order, as far as they are passed
          if (boundary == end || (passes(boundary) && boundary / each >= saved)) {
            const BlockRange needed = groups.needed(group, boundary);
            offer_group_blocks(group, {std::max(needed.begin, saved), needed.end});
            saved = std::max(saved, needed.end);
          }
        }
        break;
      }
      case GroupKind::kState:
        if (passes(kept)) {
          offer_group_blocks(group, groups.needed(group, kept));
        }
        if (passes(prompt) && prompt != kept) {
          offer_group_blocks(group, groups.needed(group, prompt));
        }
        break;
    }
  }
  next_to_save_ = grouped_->windows_saved = end;
}

void Slot::offer_last_states() {
  if (grouped_ == nullptr || !has_run_) {
    return;
  }
  const CacheGroups& groups = *grouped_->groups;
  const std::size_t end =
      groups.boundary_before(std::min(std::min(computed_, certain_tokens()) / block_size(), sequence_.block_count()));
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    if (groups[group].kind == GroupKind::kState && end > 0) {
      offer_group_blocks(group, groups.needed(group, end));
    }
  }
}

void Slot::offer_group_blocks(std::uint32_t group, BlockRange blocks) {
  const CacheGroups& groups = *grouped_->groups;
  const std::span<const BlockKey> keys = sequence_.keys();
  const std::uint32_t each = groups.each(group);
  const auto is_there = [&](std::size_t block) {
    return in_table({group, static_cast<std::uint32_t>(block)}) != kNoBlock;
  };
  for (std::size_t first = blocks.begin; first < blocks.end;) {
    std::size_t end = first;
    while (end < blocks.end && is_there(end)) {
      ++end;
    }
    if (end == first) {
      ++first;
      continue;
    }
    auto save = std::make_shared<Operation>();
    save->id = {serial_, next_number_};
    save->first_block = first * each;
    save->group = group;
    save->each = each;
    groups.append_keys(group, {first, end}, keys, save->keys);
    const std::vector<BlockId>& table = grouped_->tables[group];
    save->block_ids.assign(table.begin() + static_cast<std::ptrdiff_t>(first),
                           table.begin() + static_cast<std::ptrdiff_t>(end));
    for (std::size_t block = first; block < end; ++block) {
      save->token_hashes.push_back(sequence_.block_hashes()[(block + 1) * each - 1]);
    }
    if (groups[group].kind == GroupKind::kFull && first > 0) {
      save->parent = groups.key({group, static_cast<std::uint32_t>(first - 1)}, keys);
    }
    add_operation(std::move(save));
    first = end;
  }
}

std::size_t Slot::usable_of_load(std::size_t arrived) const noexcept {
  try {
    return usable_after_load(*grouped_->groups, staged_.begin, staged_.end, arrived);
  } catch (const std::bad_alloc&) {
    return staged_.begin;  // what came is computed again
  }
}

void Slot::add_group_load() {
  const CacheGroups& groups = *grouped_->groups;
  auto load = std::make_shared<Operation>();
  load->id = {serial_, next_number_};
  load->is_load = true;
  load->first_block = staged_.begin;
  for (const GroupBlock& block : blocks_to_load(groups, staged_.begin, staged_.end)) {
    load->keys.push_back(groups.key(block, sequence_.keys()));
    load->block_ids.push_back(in_table(block));
  }
  add_operation(std::move(load));
}

std::string_view to_string(SlotState::Kind kind) {
  constexpr std::array<std::string_view, SlotState::kKinds> kNames = {
      "Initialized", "NotScheduled", "OnboardStaged", "Onboarding", "Prefilling", "Decoding", "Finishing", "Finished"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string SlotState::to_string() const {
  const std::string_view name = cairn::to_string(kind_);
  const bool has_number = kind_ == Kind::kOnboardStaged || kind_ == Kind::kOnboarding;
  return has_number ? str_cat(name, '(', number_, ')') : std::string(name);
}

}  // namespace cairn
