#include "examples/engine/scheduler.h"

#include <algorithm>

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
  waiting_.push_back(request);
  return {};
}

const StepInput& Scheduler::schedule() {
  step_ = {};
  scheduled_.clear();
  preempted_in_step_ = false;
  schedule_running();
  // A request that just lost its blocks would take them from those for whom it lost them.
  if (!preempted_in_step_) {
    schedule_waiting();
  }
  CAIRN_CHECK(!step_.rows.empty(), "the first request to arrive can always run");
  ++figures_.steps;
  figures_.computed_tokens += step_.rows.size();
  return step_;
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
  while (!waiting_.empty() && running_.size() < config_.max_running && step_.rows.size() < config_.step_tokens) {
    Request& request = *waiting_.front();
    // The last token is computed in any case: the next one comes of it.
    const std::size_t worth_asking = (request.tokens.size() - 1) / kBlockTokens;
    request.blocks = pool_.take_cached(std::span(request.hashes).first(worth_asking));
    request.cached_blocks = request.blocks.size();
    request.computed = request.blocks.size() * kBlockTokens;
    const std::size_t count = std::min(request.tokens_to_compute(), config_.step_tokens - step_.rows.size());
    if (!give_blocks(request, request.computed + count)) {
      pool_.release(request.blocks);
      request.blocks.clear();
      request.cached_blocks = 0;
      request.computed = 0;
      return;
    }
    figures_.prefix_hit_tokens += request.computed;
    waiting_.pop_front();
    running_.push_back(&request);
    add_to_step(request, count);
  }
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
  pool_.release(request.blocks);
  request.blocks.clear();
  request.cached_blocks = 0;
  request.computed = 0;
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
}

void Scheduler::update(std::span<const Sample> samples) {
  CAIRN_CHECK(samples.size() == step_.sampled_rows.size(), "the ranks answer with the samples that were asked for");
  std::size_t next_sample = 0;
  for (const Scheduled& scheduled : scheduled_) {
    Request& request = *scheduled.request;
    request.computed += scheduled.count;
    cache_computed_blocks(request);
    if (scheduled.sampled) {
      append_sample(request, samples[next_sample++]);
    }
  }
  std::erase_if(running_, [](const Request* request) { return request->finished; });
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
  if (sample.token == config_.end_token || request.generated.size() == request.max_new_tokens) {
    request.finished = true;
    pool_.release(request.blocks);
    request.blocks.clear();
  }
}

}  // namespace cairn::engine
