// What becomes of the copies of a rank: held, submitted part by part, told, settled.
#include <algorithm>

#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_copies.h"
#include "cairn/ranks/rank_job.h"
#include "cairn/ranks/rank_work.h"

namespace cairn {

namespace {

// Layers of one copy that are under way at once: enough to keep an executor busy, few enough for first layers of other
// copies to come before the last of this one.
constexpr std::size_t kLayersAhead = 4;

}  // namespace

void RankWork::take(const JobPtr& job) {
  const RankCopy& copy = job->copy;
  job->states.assign(copy.pairs.size(), BlockState::kDone);
  if (generation_ == 0 || !jobs_.emplace(copy.id, job).second) {
    return;  // nobody to answer, or a number that is in use: the leader knows better
  }
  if (routes_ != nullptr) {
    job->whole = routes_->whole(copy.from, copy.to);
    job->routes = job->whole;
    job->groups = routes_->groups();
    job->sums.resize(copy.pairs.size() * job->groups);
  }
  if (job->routes.empty() || copy.tags.size() != copy.pairs.size()) {
    give_up(*job, BlockState::kFailed,
            job->routes.empty() ? str_cat("no blocks go from ", to_string(copy.from), " to ", to_string(copy.to))
                                : str_cat(copy.tags.size(), " tags for ", copy.pairs.size(), " blocks"));
    push(job);
    return;
  }
  refuse_fenced(*job);
  if (gate_for(*job) == Gate::kHeld) {
    held_.push_back(job);
    steps_.notify_one();
    gate_.wake();  // it may wait for a later one
  } else {
    start(job);
  }
}

RankWork::Gate RankWork::gate_for(const Job& job) {
  if (!job.touches_device()) {
    return Gate::kOpen;
  }
  if (is_of_other_leader(job)) {
    return Gate::kHeld;
  }
  if (job.copy.not_before <= gate_.now()) {
    return Gate::kOpen;
  }
  return gate_.has_failed(job.copy.not_before) ? Gate::kFailed : Gate::kHeld;
}

void RankWork::refuse_fenced(Job& job) {
  if (!job.touches_device() || is_of_other_leader(job)) {
    return;
  }
  for (std::size_t i = 0; i < job.states.size(); ++i) {
    const std::uint32_t block = job.device_block(i);
    if (block < fences_.size() && job.copy.not_before < fences_[block]) {
      // Cancelled, not failed: nothing is wrong with the device.
      spoil(job, i, BlockState::kCancelled,
            str_cat("device block ", block, " was given to another before it was copied"));
    }
  }
}

// A rank that was started anew has none of what the one before it computed, whatever its blocks are said to hold.
bool RankWork::is_from_before(const Job& job) const {
  const std::optional<StepMark> first = gate_.first();
  return job.copy.from == CacheLevel::kG1 && first && job.copy.not_before < *first;
}

void RankWork::start(const JobPtr& job) {
  const RankCopy& copy = job->copy;
  if (gate_for(*job) == Gate::kFailed) {
    give_up(*job, BlockState::kFailed,
            "an event that the engine's device was to reach before it has failed; what the device holds is unknown");
  }
  refuse_fenced(*job);  // its leader may be followed since it came
  if (is_from_before(*job)) {
    give_up(*job, BlockState::kFailed, "it was computed before this rank took part in the engine's steps");
  }
  const auto is_expected = [this](const BlockPair& pair)
                               CAIRN_REQUIRES(mutex_) { return watch_.is_expected(pair.destination); };
  if (copy.to == CacheLevel::kG1 && !watch_.is_empty() && std::ranges::any_of(copy.pairs, is_expected)) {
    job->by_layer = true;
    job->routes = routes_->by_layer(copy.from, copy.to);
  }
  push(job);
}

void RankWork::push(const JobPtr& job) {
  if (job->is_told) {
    return;
  }
  const std::size_t at_once = job->by_layer ? kLayersAhead : job->routes.size();
  while (job->next_route < job->routes.size() && job->under_way.size() < at_once) {
    if (!submit_next(job)) {
      if (std::ranges::find(stalled_, job) == stalled_.end()) {
        stalled_.push_back(job);
        steps_.notify_one();  // for its deadline
        gate_.wake();
      }
      break;
    }
  }
  tell_if_over(job);
}

void RankWork::tell_if_over(const JobPtr& job) {
  const bool is_through = job->next_route == job->routes.size() && job->under_way.empty();
  if (job->is_told || (!is_through && job->has_well())) {
    return;
  }
  tell(*job);
  end_if_settled(job);
}

// False: there is no place for it now.
bool RankWork::submit_next(const JobPtr& job) {
  if (clock_.now() >= job->deadline) {
    give_up(*job, BlockState::kExpired, "its deadline passed before it began");
    return true;
  }
  const GroupRoute& route = job->routes[job->next_route];
  Flight flight{.route = job->next_route, .blocks = {}};
  Transfer transfer{.plan = route.plan, .blocks = {}, .verify = Verify::kMake, .deadline = job->deadline};
  for (std::uint32_t i = 0; i < job->states.size(); ++i) {
    if (job->is_well(i)) {
      flight.blocks.push_back(i);
      transfer.blocks.push_back({.pair = job->copy.pairs[i], .tag = job->copy.tags[i]});
    }
  }
  if (flight.blocks.empty()) {
    job->next_route = job->routes.size();
    return true;
  }
  transfer.done = [this, job, flight = std::move(flight)](TransferOutcome&& outcome) {
    landed(job, flight, std::move(outcome));
  };
  transfer.settled = [this, job] { settled(job); };
  const Result<TransferId> submitted = route.executor->submit(std::move(transfer));
  if (!submitted && submitted.error().code == ErrorCode::kExhausted) {
    return false;
  }
  if (!submitted) {
    give_up(*job, BlockState::kFailed, submitted.error().message);
    return true;
  }
  job->under_way.push_back({.route = job->next_route, .transfer = *submitted});
  ++job->unsettled;
  ++job->next_route;
  return true;
}

void RankWork::give_up(Job& job, BlockState state, const std::string& error) {
  for (std::size_t i = 0; i < job.states.size(); ++i) {
    spoil(job, i, state, error);
  }
  job.next_route = job.routes.size();
}

void RankWork::spoil(Job& job, std::size_t block, BlockState state, const std::string& error) {
  if (!job.is_well(block)) {
    return;
  }
  job.states[block] = state;
  if (job.error.empty()) {
    job.error = error;
  }
  if (job.copy.to == CacheLevel::kG1) {
    watch_.fail(job.copy.pairs[block].destination);
    news_.notify_all();
  }
}

void RankWork::landed(const JobPtr& job, const Flight& flight, TransferOutcome&& outcome) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(job->under_way, [&](const Job::UnderWay& one) { return one.route == flight.route; });
    for (std::size_t i = 0; i < flight.blocks.size(); ++i) {
      const std::uint32_t block = flight.blocks[i];
      if (outcome.blocks[i].state != BlockState::kDone) {
        spoil(*job, block, outcome.blocks[i].state, outcome.error);
        continue;
      }
      job->sums[block * job->groups + job->routes[flight.route].group] += outcome.blocks[i].sums;
      if (job->by_layer && job->is_well(block)) {
        watch_.layer_came(job->copy.pairs[block].destination, static_cast<std::uint32_t>(flight.route));
      }
    }
    push(job);
    push_stalled();
    news_.notify_all();
  }
  flush();
}

void RankWork::settled(const JobPtr& job) {
  {
    const MutexLock lock(mutex_);
    --job->unsettled;
    end_if_settled(job);
    push_stalled();
  }
  flush();
}

void RankWork::push_stalled() {
  for (const JobPtr& job : std::exchange(stalled_, {})) {
    push(job);
  }
}

void RankWork::tell(Job& job) {
  RankCopyDone done{.id = job.copy.id, .states = {}, .checksums = {}, .error = std::move(job.error)};
  done.checksums.resize(job.states.size());
  std::vector<Checksum> of_groups(job.groups);
  for (std::size_t i = 0; i < job.states.size(); ++i) {
    if (!job.is_well(i)) {
      ++failed_;
      continue;
    }
    ++done_;
    for (std::uint32_t group = 0; group < job.groups; ++group) {
      of_groups[group] =
          finish(job.sums[i * job.groups + group], job.whole[group].plan->whole_block_bytes(), job.copy.tags[i]);
    }
    done.checksums[i] = job.groups == 1 ? of_groups.front() : combine(of_groups);
    if (job.copy.to == CacheLevel::kG1) {
      watch_.all_came(job.copy.pairs[i].destination);
    }
  }
  done.states = job.states;
  job.is_told = true;
  send(job, std::move(done));
  news_.notify_all();
}

void RankWork::end_if_settled(const JobPtr& job) {
  if (!job->is_told || job->unsettled != 0) {
    return;
  }
  send(*job, RankSettled{.id = job->copy.id});
  jobs_.erase(job->copy.id);
  news_.notify_all();
}

void RankWork::send(const Job& job, RankMessage message) {
  if (job.generation == generation_) {
    outbox_.emplace_back(job.generation, std::move(message));
  }
}

void RankWork::flush() {
  std::deque<std::pair<std::uint32_t, RankMessage>> batch;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (batch.empty() && is_flushing_) {
        return;  // whoever flushes takes these too
      }
      batch.clear();
      batch.swap(outbox_);
      is_flushing_ = !batch.empty();
      if (batch.empty()) {
        if (generation_ == 0) {
          news_.notify_all();  // lose() may wait
        }
        return;
      }
    }
    for (const auto& [generation, message] : batch) {
      answer_(generation, message);
    }
  }
}

void RankWork::start_held() {
  for (const JobPtr& job : std::exchange(held_, {})) {
    if (gate_for(*job) == Gate::kHeld) {
      held_.push_back(job);
    } else {
      start(job);
    }
  }
}

void RankWork::expire_late() {
  const TimePoint now = clock_.now();
  for (std::deque<JobPtr>* waiting : {&held_, &stalled_}) {
    for (const JobPtr& job : std::exchange(*waiting, {})) {
      if (now < job->deadline) {
        waiting->push_back(job);
      } else {
        give_up(*job, BlockState::kExpired, "its deadline passed before it began");
        push(job);
      }
    }
  }
}

}  // namespace cairn
