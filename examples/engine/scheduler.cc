#include "examples/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::engine {
namespace {

std::size_t blocks_for(std::size_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

Status Scheduler::submit(Request* request) {
  const std::size_t longest = request->prompt_tokens + request->max_new_tokens;
  if (longest > config_.max_positions) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("request ", request->id, " may grow to ", longest, " tokens, and the model has ",
                        config_.max_positions, " positions; use fewer turns"));
  }
  if (blocks_for(longest) > pool_.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("request ", request->id, " may need ", blocks_for(longest), " blocks, and the device has ",
                        pool_.size(), "; give it more with --device-blocks"));
  }
  name_full_blocks(*request);
  tiers_.add(*request);
  waiting_.push_back(request);
  return {};
}

Result<const StepInput*> Scheduler::schedule() {
  step_ = {};
  scheduled_.clear();
  preempted_in_step_ = false;
  take_loaded();
  schedule_running();
  // A preempted request must not take its blocks back from the requests that it was preempted for.
  if (!preempted_in_step_) {
    schedule_waiting();
  }
  ++figures_.steps;
  figures_.empty_steps += step_.rows.empty() ? 1 : 0;
  figures_.computed_tokens += step_.rows.size();
  if (Status built = tiers_.build(figures_.steps, step_.metadata); !built) {
    return Unexpected(built.error());
  }
  return &step_;
}

void Scheduler::take_loaded() {
  for (const SchedulerTiers::Loaded& loaded : tiers_.take_outcomes(pool_)) {
    Request& request = *loaded.request;
    if (std::erase(loading_, &request) == 0) {
      continue;  // it already computes, and the step that loaded reported the blocks
    }
    const std::size_t expected = request.blocks.size() * kBlockTokens;
    tiers_.count_load(loaded.tokens - request.computed, expected - loaded.tokens);
    request.computed = loaded.tokens;
    cache_computed_blocks(request);
    run(request);
  }
}

void Scheduler::run(Request& request) {
  const auto later = [&](const Request* other) { return other->id > request.id; };
  running_.insert(std::find_if(running_.begin(), running_.end(), later), &request);
}

void Scheduler::schedule_running() {
  for (std::size_t i = 0; i < running_.size() && step_.rows.size() < config_.step_tokens; ++i) {
    Request& request = *running_[i];
    const std::size_t count = std::min(request.tokens_to_compute(), config_.step_tokens - step_.rows.size());
    if (give_blocks_or_preempt(request, request.computed + count)) {
      add_to_step(request, count);
    }
  }
}

void Scheduler::schedule_waiting() {
  std::size_t next = 0;
  while (next < waiting_.size() && running_.size() + loading_.size() < config_.max_running &&
         step_.rows.size() < config_.step_tokens) {
    Request& request = *waiting_[next];
    switch (start(request)) {
      case Start::kAskAgain:
        ++next;
        continue;
      case Start::kNoBlocks:
        CAIRN_CHECK(!running_.empty() || !loading_.empty() || tiers_.keeps_blocks(), "a request that is alone fits");
        return;
      case Start::kLoads:
        loading_.push_back(&request);
        break;
      case Start::kComputes:
        run(request);
        break;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
  }
}

Scheduler::Start Scheduler::start(Request& request) {
  // The last token is always computed, because the next one is sampled from it.
  const std::size_t worth_asking = (request.tokens.size() - 1) / kBlockTokens;
  request.blocks = pool_.take_cached(std::span(request.hashes).first(worth_asking));
  request.cached_blocks = request.blocks.size();
  request.computed = request.blocks.size() * kBlockTokens;
  const std::size_t local = request.computed;

  using When = SchedulerConnector::Match::When;
  const SchedulerConnector::Match found = tiers_.match(request, local);
  const bool waits = found.tokens > 0 && found.when == When::kLater;
  const std::size_t ready = local + found.tokens;
  const std::size_t count =
      waits ? 0 : std::min(request.tokens.size() - ready, config_.step_tokens - step_.rows.size());
  if (found.when == When::kAskAgain || !give_blocks(request, ready + count)) {
    take_blocks(request);
    return found.when == When::kAskAgain ? Start::kAskAgain : Start::kNoBlocks;
  }
  if (!tiers_.allocated(request, local, found.tokens)) {
    take_blocks(request);
    return start(request);  // nothing more is found for it
  }
  figures_.prefix_hit_tokens += local;
  if (waits) {
    return Start::kLoads;
  }
  request.loaded_in_step = {local / kBlockTokens, ready / kBlockTokens};
  request.computed = ready;
  add_to_step(request, count);
  return Start::kComputes;
}

void Scheduler::take_blocks(Request& request) {
  pool_.release(request.blocks);
  request.blocks.clear();
  request.cached_blocks = 0;
  request.computed = 0;
}

bool Scheduler::give_blocks(Request& request, std::size_t tokens) {
  const std::size_t wanted = blocks_for(tokens);
  if (wanted <= request.blocks.size()) {
    return true;
  }
  const auto fresh = pool_.allocate(wanted - request.blocks.size());
  if (!fresh) {
    return false;
  }
  request.blocks.insert(request.blocks.end(), fresh->begin(), fresh->end());
  return true;
}

bool Scheduler::give_blocks_or_preempt(Request& request, std::size_t tokens) {
  while (!give_blocks(request, tokens)) {
    const bool itself = running_.back() == &request;
    preempt_last();
    if (itself) {
      return false;
    }
  }
  return true;
}

void Scheduler::preempt_last() {
  Request& request = *running_.back();
  running_.pop_back();
  tiers_.preempt(request);
  take_blocks(request);
  waiting_.push_front(&request);
  preempted_in_step_ = true;
  ++figures_.preemptions;
}

void Scheduler::add_to_step(Request& request, std::size_t count) {
  const auto table = static_cast<std::uint32_t>(step_.tables.size());
  step_.tables.push_back(request.blocks);
  for (std::size_t i = request.computed; i < request.computed + count; ++i) {
    step_.rows.push_back({request.tokens[i], static_cast<std::uint32_t>(i), table});
  }
  const bool sampled = count == request.tokens_to_compute();
  if (sampled) {
    step_.sampled_rows.push_back(static_cast<std::uint32_t>(step_.rows.size() - 1));
  }
  scheduled_.push_back({&request, count, sampled});
  tiers_.schedule(request, count);
}

void Scheduler::update(const StepOutput& output) {
  CAIRN_CHECK(output.samples.size() == step_.sampled_rows.size(), "the ranks answer with the requested samples");
  std::size_t next_sample = 0;
  for (const Scheduled& scheduled : scheduled_) {
    Request& request = *scheduled.request;
    const Sample* sample = scheduled.sampled ? &output.samples[next_sample++] : nullptr;
    if (!settle_load(request, output.failed_blocks)) {
      continue;
    }
    request.computed += scheduled.count;
    cache_computed_blocks(request);
    if (sample != nullptr) {
      append_sample(request, *sample);
    }
  }
  std::erase_if(running_, [](const Request* request) { return request->finished; });
}

bool Scheduler::settle_load(Request& request, std::span<const DeviceBlock> failed_blocks) {
  const BlockRange load = std::exchange(request.loaded_in_step, {});
  std::size_t arrived = load.begin;
  while (arrived < load.end && std::ranges::find(failed_blocks, request.blocks[arrived]) == failed_blocks.end()) {
    ++arrived;
  }
  tiers_.count_load((arrived - load.begin) * kBlockTokens, (load.end - arrived) * kBlockTokens);
  if (arrived < load.end) {
    request.computed = arrived * kBlockTokens;
    cache_computed_blocks(request);
  }
  return arrived == load.end;
}

void Scheduler::cache_computed_blocks(Request& request) {
  for (; (request.cached_blocks + 1) * kBlockTokens <= request.computed; ++request.cached_blocks) {
    pool_.cache(request.blocks[request.cached_blocks], request.hashes[request.cached_blocks]);
  }
}

void Scheduler::append_sample(Request& request, const Sample& sample) {
  request.generated.push_back(sample);
  request.tokens.push_back(sample.token);
  name_full_blocks(request);
  const bool has_ended = sample.token == config_.end_token;
  if (has_ended || request.generated.size() == request.max_new_tokens) {
    request.finished = true;
    tiers_.finish(request, has_ended ? RequestEnding::kEndOfTurn : RequestEnding::kLength, pool_);
  }
}

}  // namespace cairn::engine
