#include "cairn/onboard/load_mover.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Time until a full executor is tried again, unless a transfer ends before.
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);
// So short that a string needs no memory for it.
constexpr const char* kNoMemory = "no memory";

std::uint32_t count_done(std::span<const BlockState> states) {
  const auto other = std::find_if(states.begin(), states.end(), [](BlockState s) { return s != BlockState::kDone; });
  return static_cast<std::uint32_t>(other - states.begin());
}

}  // namespace

void Load::explain(std::string_view reason) {
  if (!why.empty()) {
    return;
  }
  try {
    why = reason;
  } catch (const std::bad_alloc&) {
    why = kNoMemory;
  }
}

LoadMover::LoadMover(const Onboarder::Parts& parts, Queued& queued, DoneFor done_for)
    : parts_(parts),
      queued_(queued),
      done_for_(std::move(done_for)),
      links_{parts.host_to_device, parts.disk_to_device, parts.disk_to_host, parts.remote_to_host} {}

LoadMover::Ended LoadMover::take_ended() { return std::exchange(ended_, {}); }

void LoadMover::add(const LoadPtr& load) { loads_.emplace(load->id, load); }

void LoadMover::start(const LoadPtr& load, const LoadPlan& plan, Start&& start) {
  mark_changed(load);
  std::vector<LoadPartPtr> parts = make_parts(load, plan, start.attempt);
  std::optional<MutableBlocks> targets;
  if (load->has_targets && start.targets) {
    targets.emplace(*std::move(start.targets));
  } else if (load->kind != Load::Kind::kEngine && !load->has_targets) {
    if (std::optional<MutableBlocks> allocated = allocate_targets(*load, parts)) {
      targets.emplace(*std::move(allocated));
    }
  }
  std::uint32_t next = start.first;  // key of the next target that the caller gave
  for (const LoadPartPtr& part : parts) {
    if (targets && load->has_targets) {
      (void)targets->take_front(part->first - next);  // of keys that are not copied
      next = part->first + part->count;
    }
    if (targets && (load->has_targets || part->state == LoadPart::State::kQueued)) {
      part->targets.emplace(targets->take_front(part->count));
    }
    enter(part);
  }
}

std::vector<LoadPartPtr> LoadMover::make_parts(const LoadPtr& load, const LoadPlan& plan, std::uint32_t attempt) {
  using Kind = LoadPlan::Part::Kind;
  std::vector<LoadPartPtr> parts;
  parts.reserve(plan.parts.size());
  const auto add = [&](const LoadPlan::Part& planned, std::uint32_t skipped, LoadPart::State state) {
    parts.push_back(std::make_shared<LoadPart>(LoadPart{.load = load,
                                                        .first = planned.first + skipped,
                                                        .count = planned.count - skipped,
                                                        .from = planned.from,
                                                        .attempt = attempt,
                                                        .state = state,
                                                        .joined_at = planned.joined_at,
                                                        .link = planned.link,
                                                        .through_host = planned.through_host}));
    return parts.back();
  };
  for (const LoadPlan::Part& planned : plan.parts) {
    const std::span<const BlockKey> keys = load->keys_of(planned.first, planned.count);
    if (planned.kind == Kind::kJoined) {
      if (attempt == 0) {
        // A use as any other load's. The load that reads them has them pinned.
        Tier* const read = planned.from == CacheLevel::kG4   ? parts_.remote
                           : planned.from == CacheLevel::kG3 ? parts_.disk
                                                             : parts_.host;
        (void)read->pool()->pin_prefix(keys, load->use());
      }
      add(planned, 0, LoadPart::State::kJoined);
      continue;
    }
    if (planned.kind == Kind::kPresent && load->kind == Load::Kind::kPrefetch) {
      // A prefetch counts only what was not there when it began: what another load has brought meanwhile.
      if (attempt > 0) {
        PinnedBlocks brought = parts_.host->pool()->pin_prefix(keys, BlockPool::LoadUse::kDoesNotCount);
        std::fill_n(load->is_there.begin() + planned.first, brought.size(), true);
        load->present.push_back(std::move(brought));
      }
      continue;
    }
    const bool is_present = planned.kind == Kind::kPresent;
    BlockPool& source = is_present ? *device_pool() : *links_[index_of(planned.link)]->from().pool();
    PinnedBlocks pinned = source.pin_prefix(keys, is_present ? BlockPool::LoadUse::kDoesNotCount : load->use());
    const std::uint32_t count = pinned.size();
    if (is_present && count > 0) {
      load->present.push_back(std::move(pinned));
    } else if (count > 0) {
      if (load->kind == Load::Kind::kEngine) {
        parts_.registry->used(keys.first(count));
      }
      const LoadPartPtr part = add(planned, 0, LoadPart::State::kQueued);
      part->count = count;
      part->source.emplace(std::move(pinned));
    }
    if (count == planned.count) {
      continue;
    }
    if (attempt + 1 < kLoadAttempts) {
      add(planned, count, LoadPart::State::kJoined);
    } else {
      limit(*load, planned.first + count, "its blocks were evicted before the load could pin them");
      if (load->is_prefix()) {
        break;
      }
    }
  }
  return parts;
}

std::optional<MutableBlocks> LoadMover::allocate_targets(Load& load, std::vector<LoadPartPtr>& parts) {
  const auto is_copied = [](const LoadPartPtr& part) { return part->state == LoadPart::State::kQueued; };
  std::uint32_t wanted = 0;
  for (const LoadPartPtr& part : parts) {
    wanted += is_copied(part) ? part->count : 0;
  }
  if (wanted == 0) {
    return std::nullopt;
  }
  BlockPool& pool = load.kind == Load::Kind::kPrefetch ? *parts_.host->pool() : *device_pool();
  std::optional<MutableBlocks> targets;
  std::uint32_t count = wanted;
  while (count > 0 && !targets) {
    if (Result<MutableBlocks> allocated = pool.allocate(count)) {
      targets.emplace(*std::move(allocated));
    } else {
      const std::uint32_t available = pool.counts().available();
      count = available < count ? available : count / 2;
    }
  }
  if (count == wanted) {
    return targets;
  }
  std::uint32_t left = count;
  const auto first_cut = std::find_if(parts.begin(), parts.end(), [&](const LoadPartPtr& part) {
    if (!is_copied(part)) {
      return false;
    }
    if (part->count > left) {
      return true;
    }
    left -= part->count;
    return false;
  });
  LoadPart& last = **first_cut;
  limit(load, last.first + left,
        str_cat("no room in ", to_string(pool.tier()), " for ", wanted - count, " of ", wanted, " blocks"));
  last.count = left;
  if (left > 0) {
    last.source.emplace(link_of(last).from().pool()->hold(last.keys()));  // fewer: they are pinned already
  }
  parts.erase(first_cut + (left > 0 ? 1 : 0), parts.end());
  return targets;
}

void LoadMover::enter(const LoadPartPtr& part) {
  Load& load = *part->load;
  part->node.emplace_back();
  part->place = part->node.begin();
  load.parts.push_back(part);
  if (part->state == LoadPart::State::kQueued) {
    for (const BlockKey& key : part->keys()) {
      if (const std::optional<CacheLevel> tier = load.joinable_at()) {
        by_key_[index_of(*tier)].try_emplace(key, part);
      }
      if (part->through_host) {
        by_key_[index_of(CacheLevel::kG2)].try_emplace(key, part);
      }
    }
    move_to(part, queues_[index_of(part->link)]);
    return;
  }
  const auto& in_flight = by_key_[index_of(part->joined_at)];
  const auto other = in_flight.find(load.keys[part->first]);
  if (other == in_flight.end()) {
    move_to(part, woken_);
    return;
  }
  totals_.joined += part->attempt == 0 ? part->count : 0;
  move_to(part, other->second->joined[index_of(part->joined_at)]);
}

void LoadMover::count_queued(const LoadPart& part, const LoadPartList* list, bool enters) {
  for (std::size_t link = 0; link < kLoadLinks; ++link) {
    if (list == &queues_[link]) {
      enters ? queued_.blocks[link].fetch_add(part.count, std::memory_order_relaxed)
             : queued_.blocks[link].fetch_sub(part.count, std::memory_order_relaxed);
    }
  }
}

void LoadMover::move_to(const LoadPartPtr& part, LoadPartList& list) {
  LoadPartList& from = part->list != nullptr ? *part->list : part->node;
  count_queued(*part, part->list, false);
  count_queued(*part, &list, true);
  *part->place = part;
  list.splice(list.end(), from, part->place);
  part->list = &list;
}

void LoadMover::take_out(LoadPart& part) {
  count_queued(part, part.list, false);
  part.node.splice(part.node.begin(), *part.list, part.place);
  part.list = nullptr;
  part.node.front() = nullptr;  // may be the last owner but the caller
}

void LoadMover::mark_changed(const LoadPtr& load) {
  if (!load->is_changed && !load->is_over) {
    load->is_changed = true;
    load->node.front() = load;
    changed_.splice(changed_.end(), load->node);
  }
}

LoadPartPtr LoadMover::take_woken() {
  if (woken_.empty()) {
    return nullptr;
  }
  LoadPartPtr part = woken_.front();
  take_out(*part);
  return part;
}

LoadMover::InFlight LoadMover::find_in_flight(CacheLevel tier, std::span<const BlockKey> keys) const {
  const auto& parts = by_key_[index_of(tier)];
  if (parts.empty()) {
    return {.part = nullptr, .blocks = static_cast<std::uint32_t>(keys.size())};
  }
  const auto part_of = [&parts](const BlockKey& key) -> const LoadPart* {
    const auto found = parts.find(key);
    return found != parts.end() ? found->second.get() : nullptr;
  };
  const LoadPart* const first = part_of(keys.front());
  const auto other = std::find_if(keys.begin(), keys.end(), [&](const BlockKey& key) { return part_of(key) != first; });
  return {.part = first, .blocks = static_cast<std::uint32_t>(other - keys.begin())};
}

bool LoadMover::step() {
  bool any = false;
  while (!changed_.empty()) {
    const LoadPtr load = changed_.front();
    load->node.splice(load->node.begin(), changed_, changed_.begin());
    load->node.front() = nullptr;
    load->is_changed = false;
    if (load->parts.empty() || is_decided(*load)) {
      finish(load);
      any = true;
    }
  }
  for (LoadPartList& queue : queues_) {
    while (!queue.empty() && submit_first(queue)) {
      any = true;
    }
  }
  return any;
}

bool LoadMover::submit_first(LoadPartList& queue) {
  const LoadPartPtr part = queue.front();
  const auto wait = [this] {
    retry_at_ = parts_.clock->now() + kRetryAfter;
    ended_.wake = true;
    return false;
  };
  try {
    if (part->through_host && !part->host_targets) {
      Result<MutableBlocks> blocks = parts_.host->pool()->allocate(part->count);
      if (blocks) {
        part->host_targets.emplace(*std::move(blocks));
      } else if (part->link == LoadLink::kDiskToHost && parts_.disk_to_device != nullptr &&
                 parts_.disk_to_device->may_be_tried()) {
        leave(*part, CacheLevel::kG2);
        part->through_host = false;
        part->link = LoadLink::kDiskToDevice;
        move_to(part, queues_[index_of(part->link)]);
        return true;
      } else if (in_flight_ > 0) {
        return wait();  // for blocks that transfers in flight hold
      } else {
        give_up(part, blocks.error().message);
        return true;
      }
    }
    const Result<TransferId> submitted = submit(part);
    if (!submitted && submitted.error().code == ErrorCode::kExhausted) {
      return wait();
    }
    if (!submitted) {
      give_up(part, submitted.error().message);
      return true;
    }
    part->transfer = *submitted;
    part->state = LoadPart::State::kInFlight;
    take_out(*part);
    ++in_flight_;
  } catch (const std::bad_alloc&) {
    give_up(part, kNoMemory);
  }
  return true;
}

Result<TransferId> LoadMover::submit(const LoadPartPtr& part) {
  const Load& load = *part->load;
  CopySource source = *std::move(part->source);
  part->source.reset();
  std::optional<MutableBlocks>& blocks = part->through_host ? part->host_targets : part->targets;
  const auto take_targets = [&]() -> CopyTargets {
    if (load.kind == Load::Kind::kEngine && !part->through_host) {
      const auto ids = std::span(load.targets.block_ids).subspan(part->first, source.size());
      return EngineBlocks{
          .block_ids = {ids.begin(), ids.end()}, .held = load.targets.held, .not_before = load.targets.not_before};
    }
    MutableBlocks taken = *std::move(blocks);
    blocks.reset();
    return taken;
  };
  CopyTargets targets = take_targets();
  auto submitted = link_of(*part).submit({.source = std::move(source),
                                          .targets = std::move(targets),
                                          .deadline = load.transfers_by,
                                          .done = done_for_(part)});
  if (!submitted) {
    LinkTransfer& refused = submitted.error().blocks;
    part->source.emplace(std::move(refused.source));
    if (MutableBlocks* const given_back = refused.targets.pool_blocks()) {
      blocks.emplace(std::move(*given_back));
    }
    return Unexpected(std::move(submitted.error().error));
  }
  return *submitted;
}

void LoadMover::transferred(const LoadPartPtr& part, LinkOutcome& outcome) {
  --in_flight_;
  part->state = LoadPart::State::kQueued;
  try {
    if (part->through_host) {
      arrived_in_host(part, outcome);
    } else {
      arrived(part, outcome);
    }
  } catch (const std::bad_alloc&) {
    give_up(part, kNoMemory);
  }
}

void LoadMover::arrived_in_host(const LoadPartPtr& part, LinkOutcome& outcome) {
  Load& load = *part->load;
  leave(*part, CacheLevel::kG2);
  const std::uint32_t count = load.is_prefix() ? count_done(outcome.states) : outcome.blocks.size();
  if (count < part->count) {
    load.is_late = load.is_late || std::ranges::count(outcome.states, BlockState::kExpired) > 0;
    limit(load, part->first + count, outcome.error);
  }
  if (count == 0 || load.is_over || load.is_cancelled || (load.is_prefix() && part->first >= load.limit)) {
    end_part(part);
    return;
  }
  part->source.emplace(outcome.blocks.share(count).pin());
  if (part->targets && count < part->targets->size()) {
    MutableBlocks needed = part->targets->take_front(count);
    part->targets.emplace(std::move(needed));
  }
  part->through_host = false;
  part->link = LoadLink::kHostToDevice;
  move_to(part, queues_[index_of(part->link)]);
}

void LoadMover::arrived(const LoadPartPtr& part, LinkOutcome& outcome) {
  Load& load = *part->load;
  if (!load.is_over) {
    if (!outcome.error.empty()) {
      load.is_late = load.is_late || std::ranges::count(outcome.states, BlockState::kExpired) > 0;
      limit(load, part->first + count_done(outcome.states), outcome.error);
    }
    if (!load.is_there.empty()) {
      for (std::size_t i = 0; i < outcome.states.size(); ++i) {
        load.is_there[part->first + i] = outcome.states[i] == BlockState::kDone;
      }
    }
    load.arrived.push_back(std::move(outcome.blocks));
  }
  end_part(part);
}

void LoadMover::leave(LoadPart& part, CacheLevel tier) {
  auto& parts = by_key_[index_of(tier)];
  if (!parts.empty()) {
    for (const BlockKey& key : part.keys()) {
      const auto found = parts.find(key);
      if (found != parts.end() && found->second.get() == &part) {
        parts.erase(found);
      }
    }
  }
  LoadPartList& joined = part.joined[index_of(tier)];
  for (const LoadPartPtr& other : joined) {
    other->list = &woken_;
  }
  woken_.splice(woken_.end(), joined);
}

void LoadMover::end_part(const LoadPartPtr& part) {
  if (part->state == LoadPart::State::kEnded) {
    return;
  }
  part->state = LoadPart::State::kEnded;
  leave(*part, CacheLevel::kG1);
  leave(*part, CacheLevel::kG2);
  move_to(part, ended_.parts);
  std::erase(part->load->parts, part);
  mark_changed(part->load);
}

template <typename Which>
void LoadMover::end_parts(Load& load, Which which) {
  for (std::size_t i = 0; i < load.parts.size();) {
    const LoadPartPtr part = load.parts[i];
    if (part->state == LoadPart::State::kInFlight || !which(*part)) {
      ++i;
    } else {
      end_part(part);  // takes it from the list
    }
  }
}

void LoadMover::give_up(const LoadPartPtr& part, std::string_view why) {
  limit(*part->load, part->first, why);
  end_part(part);
}

void LoadMover::limit(Load& load, std::uint32_t at, std::string_view why) {
  load.explain(why);
  if (load.is_prefix()) {
    load.limit = std::min(load.limit, at);
    end_parts(load, [&load](const LoadPart& part) { return part.first >= load.limit; });
  }
}

void LoadMover::out_of_memory(const LoadPtr& load) {
  load->explain(kNoMemory);
  load->planned = static_cast<std::uint32_t>(load->keys.size());  // it ends with less, whatever was found
  end_parts(*load, [&load](const LoadPart& part) {
    load->limit = std::min(load->limit, part.first);
    return true;
  });
  mark_changed(load);
}

void LoadMover::cancel(const LoadPtr& load, std::string_view why) {
  load->is_cancelled = true;
  load->explain(why);
  for (const LoadPartPtr& part : load->parts) {
    if (part->state == LoadPart::State::kInFlight) {
      try {
        link_of(*part).cancel(part->transfer);
      } catch (const std::bad_alloc&) {
        // The transfer goes on to its end.
      }
    }
  }
  end_parts(*load, [](const LoadPart&) { return true; });
  mark_changed(load);
}

bool LoadMover::check_deadlines(TimePoint now) {
  bool any = false;
  for (auto next = loads_.begin(); next != loads_.end();) {
    const LoadPtr load = (next++)->second;  // finish() erases it
    if (load->deadline <= now) {
      load->explain("the deadline passed");
      finish(load);
      any = true;
    } else if (load->transfers_by <= now && !load->is_called_in) {
      load->is_called_in = true;
      for (const LoadPartPtr& part : load->parts) {
        if (part->state == LoadPart::State::kInFlight) {
          link_of(*part).executor().check_deadlines();
        }
      }
      any = true;
    }
  }
  return any;
}

std::optional<TimePoint> LoadMover::next_time() const {
  TimePoint next = TimePoint::max();
  for (const auto& [id, load] : loads_) {
    next = std::min(next, load->is_called_in ? load->deadline : load->transfers_by);
  }
  if (std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return !queue.empty(); })) {
    next = std::min(next, retry_at_);
  }
  return next != TimePoint::max() ? std::optional(next) : std::nullopt;
}

// Transfers after a hole cannot lengthen the prefix. Only loads into engine blocks wait for them, because they write to
// those blocks.
bool LoadMover::is_decided(const Load& load) {
  return load.kind == Load::Kind::kPrefix &&
         std::none_of(load.parts.begin(), load.parts.end(),
                      [&load](const LoadPartPtr& part) { return part->first < load.limit; });
}

// Transfers in flight go on without the load.
void LoadMover::finish(const LoadPtr& load) {
  load->is_over = true;
  loads_.erase(load->id);
  ++totals_.finished;
  end_parts(*load, [](const LoadPart&) { return true; });
  load->outcome = outcome_of(*load);
  if (load->outcome.prefix >= load->planned) {
    load->outcome.why.clear();
  } else if (load->is_late || parts_.clock->now() >= load->deadline) {
    ++totals_.expired;
  }
  if (load->is_changed) {
    const auto place = std::find(changed_.begin(), changed_.end(), load);
    ended_.loads.splice(ended_.loads.end(), changed_, place);
  } else {
    load->node.front() = load;
    ended_.loads.splice(ended_.loads.end(), load->node);
  }
}

LoadOutcome LoadMover::outcome_of(Load& load) const {
  LoadOutcome outcome;
  outcome.not_worth_it = load.not_worth_it;
  outcome.why = std::move(load.why);
  if (load.is_fenced) {
    return outcome;
  }
  try {
    collect(load, outcome);
  } catch (const std::bad_alloc&) {
    outcome.prefix = outcome.blocks.size();
    outcome.why = kNoMemory;
  }
  if (load.is_prefix()) {
    for (std::uint32_t i = 0; i < outcome.prefix; ++i) {
      ++outcome.from[index_of(i < load.found.size() ? load.found[i] : CacheLevel::kG1)];
    }
  }
  return outcome;
}

void LoadMover::collect(Load& load, LoadOutcome& outcome) const {
  switch (load.kind) {
    case Load::Kind::kPrefix: {
      outcome.blocks = std::move(load.base);
      const auto rest = std::span<const BlockKey>(load.keys).subspan(outcome.blocks.size());
      CAIRN_CHECK(outcome.blocks.append(device_pool()->match_prefix(rest)).has_value(), "all are of the device's pool");
      outcome.prefix = outcome.blocks.size();
      break;
    }
    case Load::Kind::kEngine:
      outcome.prefix = static_cast<std::uint32_t>(std::find(load.is_there.begin(), load.is_there.end(), false) -
                                                  load.is_there.begin());
      break;
    case Load::Kind::kGiven:
      outcome.blocks = device_pool()->scan(load.keys);
      outcome.prefix = outcome.blocks.size();
      if (outcome.why.empty()) {
        outcome.why = "no tier that can be read has the blocks";
      }
      break;
    case Load::Kind::kPrefetch:
      outcome.prefix = static_cast<std::uint32_t>(std::count(load.is_there.begin(), load.is_there.end(), true));
      break;
  }
}

}  // namespace cairn
