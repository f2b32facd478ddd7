#include "cairn/sim/engine.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::sim {

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, std::uint64_t seed, Recorder& recorder,
                                               KvEventSink* sink, const EngineTiers* tiers) {
  if (options.max_num_seqs == 0 || options.max_num_batched_tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "max_num_seqs or max_num_batched_tokens is 0; give at least 1 of each");
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<KvManager> manager, KvManager::create({.max_capacity = options.blocks,
                                                                          .block_size = options.block_size,
                                                                          .eviction = options.eviction,
                                                                          .profile = options.profile,
                                                                          .sink = sink}));
  if (tiers != nullptr) {
    CAIRN_TRY(manager->attach_offload_engine(tiers->offload, *tiers->network));
  }
  return std::unique_ptr<Engine>(new Engine(options, seed, recorder, std::move(manager)));
}

Engine::Engine(const EngineOptions& options, std::uint64_t seed, Recorder& recorder, std::unique_ptr<KvManager> manager)
    : options_(options),
      manager_(std::move(manager)),
      identities_(seed),
      recorder_(recorder),
      waiting_may_preempt_(options.profile == Profile::kSeed) {}

Status Engine::check_fits(const EngineOptions& options, std::uint64_t input_tokens, std::uint64_t output_tokens) {
  const std::uint64_t tokens = input_tokens + output_tokens;
  const std::uint64_t blocks = (tokens + options.block_size - 1) / options.block_size;
  if (blocks > options.blocks) {
    return fail(ErrorCode::kExhausted, str_cat(tokens, " tokens take ", blocks, " blocks of ", options.block_size,
                                               ", and a worker has ", options.blocks, "; give workers more blocks"));
  }
  if (!options.chunked_prefill && input_tokens > options.max_num_batched_tokens) {
    return fail(ErrorCode::kExhausted,
                str_cat("a prompt of ", input_tokens, " tokens does not fit into a pass of ",
                        options.max_num_batched_tokens, "; allow more tokens in a pass, or chunked prefill"));
  }
  return {};
}

void Engine::submit(const Ticket& ticket, Prompt prompt, std::uint64_t output_tokens, TimePoint arrival) {
  Result<ActiveSequence> sequence = ActiveSequence::create_hashed(std::move(prompt),
                                                                  {.block_size = options_.block_size,
                                                                   .max_output_tokens = output_tokens,
                                                                   .enable_prefix_caching = options_.prefix_caching},
                                                                  identities_);
  CAIRN_CHECK(sequence.has_value(), "the prompt was hashed at this block size");
  if (unused_requests_.empty()) {
    unused_requests_.push_back(static_cast<RequestId>(requests_.size()));
    requests_.emplace_back();
  }
  const RequestId id = unused_requests_.back();
  unused_requests_.pop_back();
  requests_[id].emplace(*std::move(sequence), ticket, arrival);
  waiting_.push_back(id);
}

TimePoint Engine::run_pass(TimePoint now, TimePoint horizon) {
  finished_.clear();
  take_landed(now);
  if (const std::uint64_t count = count_quiet_passes(now, horizon); count > 0) {
    return run_quiet_passes(now, count);
  }
  manager_->set_time(now);
  pass_ = {.begin = now, .budget = options_.max_num_batched_tokens};
  schedule_running();
  admit_waiting();
  pass_.admitting = false;
  const Duration prefill = prefill_time();
  const std::uint64_t prompt_tokens = pass_.prompt_after - pass_.prompt_before;
  const bool any_ready = std::ranges::any_of(running_, &Row::ready);
  const Duration decoding = decode_time();
  PassFigures figures{.begin = now,
                      .blocks_in_use = blocks_in_use_,
                      .blocks_resident = blocks_resident_,
                      .prompt_tokens = prompt_tokens};
  figures.tokens = any_ready ? decode(now + prefill + decoding) : 0;
  figures.end = end_of_pass(now, prefill + (figures.tokens > 0 ? decoding : Duration(0)));
  figures.waiting = waiting_.size() + loading_.size();
  record_tiers(figures);
  recorder_.pass(figures);
  check_livelock(figures.tokens);
  return figures.end;
}

void Engine::check_livelock(std::uint64_t tokens) {
  fruitless_preemptions_ = tokens > 0 ? 0 : fruitless_preemptions_ + pass_.preempted;
  if (fruitless_preemptions_ > kMaxFruitlessPreemptions && !livelocked_) {
    livelocked_ = true;
    waiting_may_preempt_ = false;
    recorder_.livelock();
  }
}

void Engine::take_landed(TimePoint now) {
  if (!manager_->has_offload_engine()) {
    return;
  }
  if (const std::optional<TimePoint> event = manager_->next_event_time(); event && *event <= now) {
    moved_ = true;
    waits_for_room_ = false;
  }
  manager_->advance_to(now);
  const std::vector<LoadId> landed = manager_->take_landed_swap_ins();
  for (auto id = landed.rbegin(); id != landed.rend(); ++id) {
    const auto found = loading_.find(*id);
    CAIRN_CHECK(found != loading_.end(), "a request waits for each load");
    request(found->second).loaded = *id;
    waiting_.push_front(found->second);
    loading_.erase(found);
  }
}

SwapInStart::Outcome Engine::start_load(RequestId id) {
  Request& it = request(id);
  if (!manager_->has_offload_engine() || it.computed != 0 || it.loaded || !options_.prefix_caching || livelocked_) {
    return SwapInStart::Outcome::kNothing;
  }
  const std::optional<Use> use = it.sequence.prepare_allocation(it.sequence.size());
  if (!use) {
    return SwapInStart::Outcome::kNothing;
  }
  const Result<SwapInStart> start = manager_->start_swap_in(*use);
  CAIRN_CHECK(start.has_value(), "the moves of a sequence are consistent");
  moved_ = true;
  if (start->outcome != SwapInStart::Outcome::kScheduled) {
    return start->outcome;
  }
  for (TierIndex tier = 0; tier < manager_->offload_engine()->tier_count(); ++tier) {
    recorder_.loaded(tier, start->plan.blocks_from(tier) * options_.block_size);
  }
  loading_.emplace(start->id, id);
  return start->outcome;
}

void Engine::end_load(Request& it) {
  if (it.loaded) {
    CAIRN_CHECK(manager_->end_swap_in(*it.loaded).has_value(), "a load is ended once");
    it.loaded.reset();
  }
}

TimePoint Engine::end_of_pass(TimePoint now, Duration taken) const {
  if (taken.count() > 0) {
    return now + taken;
  }
  return std::max(now, manager_->next_event_time().value_or(now));
}

void Engine::record_tiers(PassFigures& figures) const {
  if (const OffloadEngine* const below = manager_->offload_engine(); below != nullptr) {
    for (TierIndex tier = 0; tier < below->tier_count() && tier < figures.below.size(); ++tier) {
      figures.below[tier] = below->tier(tier).counts().registered;
    }
  }
}

std::uint64_t Engine::count_quiet_passes(TimePoint now, TimePoint horizon) {
  if (may_admit() || running_.empty() || running_.size() > options_.max_num_batched_tokens) {
    return 0;
  }
  if (const std::optional<TimePoint> event = manager_->next_event_time()) {
    horizon = std::min(horizon, *event);
  }
  const std::uint64_t quiet = std::ranges::min(running_, {}, &Row::quiet).quiet;
  if (quiet < 2 || horizon <= now) {
    return std::min<std::uint64_t>(quiet, 1);
  }
  const Duration time = decode_time();
  const std::uint64_t before_horizon =
      time.count() == 0 ? quiet : static_cast<std::uint64_t>((horizon - now - Duration(1)) / time) + 1;
  return std::min(quiet, before_horizon);
}

TimePoint Engine::run_quiet_passes(TimePoint now, std::uint64_t count) {
  const Duration time = decode_time();
  for (Row& row : running_) {
    row.quiet -= static_cast<std::uint32_t>(count);
  }
  recorder_.gap(now + time - last_stamp_, running_.size());
  if (count > 1) {
    recorder_.gap(time, running_.size() * (count - 1));
  }
  last_stamp_ = now + time * static_cast<Duration::rep>(count);
  PassFigures figures{.begin = now,
                      .end = last_stamp_,
                      .passes = count,
                      .blocks_in_use = blocks_in_use_,
                      .blocks_resident = blocks_resident_,
                      .waiting = waiting_.size() + loading_.size(),
                      .tokens = running_.size() * count};
  record_tiers(figures);
  recorder_.pass(figures);
  return last_stamp_;
}

Duration Engine::decode_time() {
  if (std::exchange(moved_, false)) {
    blocks_in_use_ = manager_->num_active_blocks();
    blocks_resident_ = blocks_in_use_ + manager_->num_inactive_blocks();
    decode_time_ = options_.costs.decode({blocks_in_use_, options_.blocks, options_.block_size});
  }
  return decode_time_;
}

void Engine::schedule_running() {
  for (Row& row : running_) {
    row = {.request = row.request, .quiet = row.quiet};
  }
  std::size_t i = 0;
  while (i < running_.size() && pass_.budget > 0) {
    Row& row = running_[i];
    if (row.quiet > 0) {
      row.used = 1;
      row.ready = true;
      --pass_.budget;
      ++i;
      continue;
    }
    settle(row);
    const Outcome outcome = schedule(row);
    if (outcome == Outcome::kBlocked) {
      break;
    }
    i += outcome == Outcome::kScheduled ? 1 : 0;
  }
  for (; i < running_.size(); ++i) {
    settle(running_[i]);
  }
}

void Engine::admit_waiting() {
  pass_.admitting = true;
  while (pass_.preempted == 0 && may_admit()) {
    switch (start_load(waiting_.front())) {
      case SwapInStart::Outcome::kNothing:
        break;
      case SwapInStart::Outcome::kScheduled:
        waiting_.pop_front();
        continue;
      case SwapInStart::Outcome::kBlocked:
        return;
    }
    Row row{.request = waiting_.front()};
    if (schedule(row) != Outcome::kScheduled) {
      return;
    }
    // A request that it preempted is before it in the queue now.
    waiting_.erase(std::ranges::find(waiting_, row.request));
    running_.push_back(row);
    record_admission(row);
    if (row.used == 0 && pass_.budget == 0) {
      return;
    }
  }
}

void Engine::record_admission(const Row& row) {
  RequestFigures& figures = request(row.request).figures;
  if (!figures.admitted) {
    figures.admitted = pass_.begin;
    figures.first_reused_tokens = row.cached;
  }
  figures.reused_tokens = std::max<std::uint64_t>(figures.reused_tokens, row.cached);
  recorder_.admission(row.cached);
}

std::uint64_t Engine::cached_tokens(const Request& request) const {
  if (request.computed != 0) {
    return 0;
  }
  const std::uint64_t cached = manager_->get_prefill_cost(request.sequence).cached_tokens;
  // The last token is always computed: the next one is generated from it.
  return options_.profile == Profile::kStrict && cached == request.sequence.size() ? cached - 1 : cached;
}

Engine::Outcome Engine::schedule(Row& row) {
  const RequestId id = row.request;
  Request& it = request(id);
  const std::uint64_t cached = cached_tokens(it);
  const std::uint64_t before = it.computed + cached;
  const std::uint64_t length = it.sequence.size();
  const std::uint64_t input = it.sequence.num_input_tokens();
  const std::uint64_t remaining = length - before;
  const std::uint64_t want = std::min(remaining, pass_.budget);
  const bool prompt_too_long = !options_.chunked_prefill && before < input && input - before > pass_.budget;
  if (prompt_too_long || (want == 0 && remaining > 0)) {
    return Outcome::kBlocked;
  }
  if (allocate(id, before + want) == Outcome::kPreempted) {
    return Outcome::kPreempted;
  }
  const std::uint64_t used = it.computed > before ? it.computed - before : 0;
  if (used == 0 && it.computed < length) {
    return Outcome::kBlocked;
  }
  pass_.budget -= used;
  row.used = static_cast<std::uint32_t>(used);
  row.cached = static_cast<std::uint32_t>(cached);
  row.ready = it.computed >= length;
  row.prompt_before = static_cast<std::uint32_t>(std::min(before, input));
  row.prompt_after = static_cast<std::uint32_t>(std::min(it.computed, input));
  if (row.prompt_after > row.prompt_before) {
    ++pass_.prompts;
    pass_.prompt_before += row.prompt_before;
    pass_.prompt_after += row.prompt_after;
  } else {
    row.prompt_before = row.prompt_after = 0;
  }
  return Outcome::kScheduled;
}

Engine::Outcome Engine::allocate(RequestId id, std::uint64_t target) {
  Request& it = request(id);
  while (target > it.sequence.num_allocated_tokens()) {
    const std::optional<Use> use = it.sequence.prepare_allocation(target);
    const std::size_t needed = use ? use->blocks.size() : 0;
    const std::size_t granted = use ? process(*use) : 0;
    end_load(it);
    if (granted == needed) {
      it.sequence.commit_allocation(target);
      break;
    }
    const std::uint64_t covered = (it.sequence.num_allocated_blocks() + granted) * options_.block_size;
    it.sequence.commit_allocation(std::min(covered, target));
    it.computed = it.sequence.num_allocated_tokens();
    if (manager_->waits_for_offload()) {
      return Outcome::kScheduled;
    }
    switch (make_room_for(id)) {
      case Yielded::kItself:
        return Outcome::kPreempted;
      case Yielded::kNobody:
        return Outcome::kScheduled;
      case Yielded::kOther:
        break;
    }
  }
  it.computed = target;
  return Outcome::kScheduled;
}

Duration Engine::prefill_time() const {
  if (pass_.prompts == 0) {
    return Duration(0);
  }
  if (options_.profile == Profile::kStrict) {
    return options_.costs.prefill(pass_.prompt_after - pass_.prompt_before);
  }
  return options_.costs.prefill(pass_.prompts *
                                (pass_.prompt_after / pass_.prompts - pass_.prompt_before / pass_.prompts));
}

std::uint64_t Engine::decode(TimePoint stamp) {
  std::uint64_t quiet = 0;
  std::uint64_t others = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Row& row = running_[i];
    if (!row.ready) {
      continue;
    }
    if (row.quiet > 0) {
      --row.quiet;
      ++quiet;
    } else {
      others += generate(i, stamp) ? 1 : 0;
    }
  }
  if (quiet > 0) {
    recorder_.gap(stamp - last_stamp_, quiet);
  }
  if (!finished_.empty()) {
    std::erase_if(running_, [](const Row& row) { return row.request == kNoRequest; });
  }
  if (quiet + others > 0) {
    last_stamp_ = stamp;
  }
  return quiet + others;
}

bool Engine::generate(std::size_t index, TimePoint stamp) {
  const RequestId id = running_[index].request;
  Request& it = request(id);
  while (!try_generate(it)) {
    if (manager_->waits_for_offload()) {
      return false;
    }
    const Yielded yielded = make_room_for(id);
    CAIRN_CHECK(yielded != Yielded::kNobody || !loading_.empty(), "a running request can preempt itself");
    if (yielded != Yielded::kOther) {
      return false;
    }
  }
  record_token(it, stamp);
  if (it.sequence.generated_tokens() == it.sequence.max_output_tokens()) {
    finish(running_[index]);
    return true;
  }
  it.sequence.commit_allocation(it.sequence.size());
  // The time of the second token is reported, so that token is not only counted.
  const bool may_be_quiet = it.sequence.generated_tokens() > 1;
  running_[index].quiet = it.quiet = may_be_quiet ? static_cast<std::uint32_t>(it.sequence.quiet_tokens()) : 0;
  return true;
}

bool Engine::try_generate(Request& it) {
  Result<TokenMoves> moves = it.sequence.generate();
  CAIRN_CHECK(moves.has_value(), "a request that fits generates to its end");
  if (moves->promote) {
    static_cast<void>(process(*moves->promote));
  }
  if (moves->use && process(*moves->use) == 0) {
    CAIRN_CHECK(it.sequence.pop().has_value(), "a token was just generated");
    return false;
  }
  if (moves->release) {
    static_cast<void>(process(*moves->release));
    waits_for_room_ = false;
  }
  return true;
}

void Engine::record_token(Request& it, TimePoint stamp) {
  RequestFigures& figures = it.figures;
  if (it.sequence.generated_tokens() == 1) {
    figures.first_token = stamp;
    recorder_.first_token(figures);
  } else {
    if (it.sequence.generated_tokens() == 2) {
      figures.second_token = stamp;
    }
    recorder_.gap(stamp - it.last_token, 1);
  }
  it.last_token = stamp;
}

void Engine::finish(Row& row) {
  Request& it = request(row.request);
  it.figures.last_token = it.last_token;
  it.figures.output_tokens = it.sequence.generated_tokens();
  recorder_.finished(it.ticket.number, it.figures);
  finished_.push_back(it.ticket);
  requests_[row.request].reset();
  unused_requests_.push_back(std::exchange(row.request, kNoRequest));
}

Engine::Yielded Engine::make_room_for(RequestId id) {
  const bool runs_alone = running_.size() == 1 && running_.front().request == id;
  if (pass_.admitting && !waiting_may_preempt_ && !running_.empty()) {
    waits_for_room_ = true;
    return Yielded::kNobody;
  }
  if (!running_.empty() && !runs_alone) {
    const bool itself = running_.back().request == id;
    preempt_last();
    return itself ? Yielded::kItself : Yielded::kOther;
  }
  // No running request is left to preempt, so take the blocks that a waiting one was granted or has loaded.
  for (auto holder = waiting_.rbegin(); holder != waiting_.rend(); ++holder) {
    Request& other = request(*holder);
    if (*holder == id || (other.sequence.num_allocated_tokens() == 0 && !other.loaded)) {
      continue;
    }
    end_load(other);
    if (other.sequence.num_allocated_tokens() > 0) {
      release_blocks(other);
      recorder_.preemption();
    }
    return Yielded::kOther;
  }
  // Blocks that are being loaded can be evicted once they have landed. If this request preempted itself instead, it and
  // the loading one would preempt each other forever.
  if (!runs_alone || !loading_.empty()) {
    return Yielded::kNobody;
  }
  preempt_last();
  return Yielded::kItself;
}

void Engine::preempt_last() {
  Row& row = running_.back();
  settle(row);
  release_blocks(request(row.request));
  pass_.budget += row.used;
  if (row.prompt_after > 0) {
    --pass_.prompts;
    pass_.prompt_before -= row.prompt_before;
    pass_.prompt_after -= row.prompt_after;
  }
  ++pass_.preempted;
  recorder_.preemption();
  waiting_.push_front(row.request);
  running_.pop_back();
}

void Engine::release_blocks(Request& it) {
  const Deref release = it.sequence.reset_with_signal();
  if (!release.blocks.empty()) {
    static_cast<void>(process(release));
    waits_for_room_ = false;
  }
  it.computed = 0;
}

void Engine::settle(Row& row) {
  Request& it = request(row.request);
  const std::uint32_t count = it.quiet - row.quiet;
  if (count > 0) {
    it.sequence.generate_quietly(count);
    it.sequence.commit_allocation(it.sequence.size());
    it.computed = it.sequence.size() - 1;
    it.last_token = last_stamp_;
  }
  it.quiet = row.quiet = 0;
}

std::size_t Engine::process(const MoveBlock& move) {
  moved_ = true;
  const Result<std::size_t> granted = manager_->process(move);
  CAIRN_CHECK(granted.has_value(), "the moves of a sequence are consistent, and it releases only blocks that it has");
  return *granted;
}

}  // namespace cairn::sim
