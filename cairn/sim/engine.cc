#include "cairn/sim/engine.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/sim/managed_cache.h"
#include "cairn/sim/plain_cache.h"

namespace cairn::sim {

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, std::uint64_t seed, Recorder& recorder,
                                               KvEventSink* sink, const EngineTiers* tiers) {
  if (options.max_num_seqs == 0 || options.max_num_batched_tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "max_num_seqs or max_num_batched_tokens is 0; give at least 1 of each");
  }
  if (tiers != nullptr) {
    ManagerConfig config = tiers->config;
    config.block_size = options.block_size;
    config.device.blocks = options.blocks;
    config.device.size = 0;
    config.device.policy = options.eviction;
    config.device.leaves_first = options.leaves_first;
    CAIRN_TRY_ASSIGN(
        std::unique_ptr<ManagedCache> cache,
        ManagedCache::make(
            {.config = config, .site = tiers->site, .links = tiers->links, .faults = tiers->faults, .sink = sink}));
    const KvBlockManager& manager = cache->manager();
    std::unique_ptr<Engine> engine(new Engine(options, seed, recorder, std::move(cache)));
    engine->manager_ = &manager;
    return engine;
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<KvManager> manager, KvManager::create({.max_capacity = options.blocks,
                                                                          .block_size = options.block_size,
                                                                          .eviction = options.eviction,
                                                                          .leaves_first = options.leaves_first,
                                                                          .profile = options.profile,
                                                                          .sink = sink}));
  return std::unique_ptr<Engine>(new Engine(options, seed, recorder, std::make_unique<PlainCache>(std::move(manager))));
}

Engine::Engine(const EngineOptions& options, std::uint64_t seed, Recorder& recorder, std::unique_ptr<WorkerCache> cache)
    : options_(options),
      cache_(std::move(cache)),
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
  if (any_ready || prefill.count() > 0) {
    report_pass(prefill + (any_ready ? decoding : Duration(0)), 1);
  }
  figures.tokens = any_ready ? decode(now + prefill + decoding) : 0;
  cache_->end_pass();
  figures.end = end_of_pass(now, prefill + (figures.tokens > 0 ? decoding : Duration(0)));
  figures.waiting = waiting_.size() + loading_;
  figures.below = cache_->blocks_below();
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
  cache_->advance_to(now);
  if (manager_ == nullptr) {
    return;
  }
  std::vector<LandedLoad> landed = cache_->take_landed();
  if (!landed.empty() || cache_->waits_for_copies()) {
    waits_for_room_ = false;
  }
  moved_ = moved_ || !landed.empty() || loading_ > 0;  // loads take blocks as they make progress
  for (auto load = landed.rbegin(); load != landed.rend(); ++load) {
    const auto id = static_cast<RequestId>(load->request);
    Request& it = request(id);
    it.holding.blocks = std::move(load->blocks);
    it.loaded = load->tokens;
    it.was_loaded = true;
    recorder_.load_landed(load->waited);
    waiting_.push_front(id);
    --loading_;
  }
}

LoadStart::Outcome Engine::start_load(RequestId id) {
  Request& it = request(id);
  if (manager_ == nullptr || it.computed != 0 || it.was_loaded || it.sequence.num_allocated_tokens() != 0 ||
      pass_.budget == 0) {
    return LoadStart::Outcome::kNothing;
  }
  const LoadStart start = cache_->start_load(
      it.sequence, {.request = id, .busy = !running_.empty(), .must_not_wait = running_.empty() && loading_ == 0});
  it.rejected = start.rejected_tokens;
  moved_ = true;
  loading_ += start.outcome == LoadStart::Outcome::kScheduled ? 1 : 0;
  waits_for_room_ = start.outcome == LoadStart::Outcome::kBlocked;
  return start.outcome;
}

void Engine::report_pass(Duration taken, std::uint64_t times) {
  if (manager_ == nullptr) {
    return;
  }
  EngineIteration iteration{.is_full = pass_.budget == 0, .duration = taken};
  for (const Row& row : running_) {
    if (row.prompt_after > row.prompt_before) {
      iteration.add_prefill(row.prompt_before, row.prompt_after - row.prompt_before);
    } else if (row.ready || row.quiet > 0) {
      iteration.add_decode(request(row.request).sequence.size(), 1);
    }
  }
  cache_->report(iteration, times);
}

TimePoint Engine::end_of_pass(TimePoint now, Duration taken) const {
  if (taken.count() > 0) {
    return now + taken;
  }
  return std::max(now, cache_->next_event_time().value_or(now));
}

std::uint64_t Engine::count_quiet_passes(TimePoint now, TimePoint horizon) {
  if (may_admit() || running_.empty() || running_.size() > options_.max_num_batched_tokens) {
    return 0;
  }
  if (loading_ > 0 || (waits_for_room_ && cache_->waits_for_copies())) {
    horizon = std::min(horizon, cache_->next_event_time().value_or(horizon));
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
  pass_ = {.begin = now, .budget = options_.max_num_batched_tokens};
  report_pass(time, count);
  recorder_.pass({.begin = now,
                  .end = last_stamp_,
                  .passes = count,
                  .blocks_in_use = blocks_in_use_,
                  .blocks_resident = blocks_resident_,
                  .waiting = waiting_.size() + loading_,
                  .tokens = running_.size() * count,
                  .below = cache_->blocks_below()});
  return last_stamp_;
}

Duration Engine::decode_time() {
  if (std::exchange(moved_, false)) {
    blocks_in_use_ = cache_->num_active_blocks();
    blocks_resident_ = cache_->num_resident_blocks();
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
      case LoadStart::Outcome::kNothing:
        break;
      case LoadStart::Outcome::kScheduled:
        waiting_.pop_front();
        continue;
      case LoadStart::Outcome::kBlocked:
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
  Request& it = request(row.request);
  recorder_.admission({.cached = row.cached, .loaded = it.loaded, .rejected = std::exchange(it.rejected, 0)});
  it.loaded = {};
}

std::uint64_t Engine::cached_tokens(const Request& request) const {
  if (request.computed != 0) {
    return 0;
  }
  const std::uint64_t cached = cache_->cached_tokens(request.sequence, request.holding);
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
    const std::size_t granted = use ? process(*use, it) : 0;
    if (granted == needed) {
      it.sequence.commit_allocation(target);
      break;
    }
    const std::uint64_t covered = (it.sequence.num_allocated_blocks() + granted) * options_.block_size;
    it.sequence.commit_allocation(std::min(covered, target));
    it.computed = it.sequence.num_allocated_tokens();
    if (cache_->waits_for_copies()) {
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

Duration Engine::prefill_time() {
  if (pass_.prompts == 0) {
    return Duration(0);
  }
  if (options_.costs.depends_on_context()) {
    parts_.clear();
    for (const Row& row : running_) {
      if (row.prompt_after > row.prompt_before) {
        parts_.push_back({.before = row.prompt_before, .after = row.prompt_after});
      }
    }
    return options_.costs.prefill(parts_);
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
    if (cache_->waits_for_copies()) {
      return false;
    }
    const Yielded yielded = make_room_for(id);
    CAIRN_CHECK(yielded != Yielded::kNobody || loading_ > 0, "a running request can preempt itself");
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
    static_cast<void>(process(*moves->promote, it));
  }
  if (moves->use && process(*moves->use, it) == 0) {
    CAIRN_CHECK(it.sequence.pop().has_value(), "a token was just generated");
    return false;
  }
  if (moves->release) {
    static_cast<void>(process(*moves->release, it));
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
    if (*holder == id || (other.sequence.num_allocated_tokens() == 0 && other.holding.blocks.empty())) {
      continue;
    }
    if (other.sequence.num_allocated_tokens() > 0) {
      release_blocks(other);
      recorder_.preemption();
    } else {
      other.holding.blocks = {};  // that were loaded for it
      other.loaded = {};
    }
    return Yielded::kOther;
  }
  // Blocks that are being loaded can be evicted once they have landed. If this request preempted itself instead, it and
  // the loading one would preempt each other forever.
  if (!runs_alone || loading_ > 0) {
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
    static_cast<void>(process(release, it));
    waits_for_room_ = false;
  }
  it.was_loaded = false;
  it.loaded = {};
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

std::size_t Engine::process(const MoveBlock& move, Request& request) {
  moved_ = true;
  return cache_->process(move, request.holding);
}

}  // namespace cairn::sim
