#include "cairn/ranks/rank_work.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <unordered_set>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_job.h"

namespace cairn {

namespace {

TimePoint later(TimePoint now, Duration by) { return by > TimePoint::max() - now ? TimePoint::max() : now + by; }

}  // namespace

RankWork::RankWork(std::uint32_t model_layers, const Clock& clock, Answer answer)
    : clock_(clock),
      answer_(std::move(answer)),
      watch_(model_layers),
      thread_(start_own_thread("cairn-rank-work", [this] { wait_for_steps(); })) {}

RankWork::~RankWork() {
  lose();
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    steps_.notify_one();
  }
  gate_.wake();
  thread_.join();
  routes_.reset();  // calls what is due
}

void RankWork::use(std::unique_ptr<RankRoutes> routes) {
  CAIRN_CHECK(is_quiet(), "copies are over before what they go by is changed");
  {
    const MutexLock lock(mutex_);
    std::swap(routes_, routes);
    if (routes_ != nullptr) {
      fences_.resize(routes_->device_blocks());  // the engine's blocks, whatever the leader: fences stay
    }
  }
  // What was before ends here, outside the lock.
}

void RankWork::begin(std::uint32_t generation, const LeaderId& leader) {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(jobs_.empty(), "copies of one generation are over before the next begins");
  generation_ = generation;
  joined_ = leader;
  if (!followed_) {
    followed_ = leader;
  }
}

bool RankWork::is_of_other_leader(const Job& job) const { return job.leader != followed_; }

void RankWork::cancel_under_way(const Job& job) {
  for (const Job::UnderWay& one : job.under_way) {
    job.routes[one.route].executor->cancel(one.transfer);
  }
}

void RankWork::drop(const JobPtr& job) {
  cancel_under_way(*job);
  std::erase(held_, job);
  std::erase(stalled_, job);
  give_up(*job, BlockState::kFailed, "the engine follows another leader");
  push(job);
}

bool RankWork::follow(const LeaderId& leader, TimePoint deadline) {
  {
    const MutexLock lock(mutex_);
    if (followed_ != leader) {
      followed_ = leader;
      gate_.reset();
      std::ranges::fill(fences_, StepMark());
      watch_.expect({});
      const std::map<TransferId, JobPtr> jobs = jobs_;
      for (const auto& [id, job] : jobs) {
        if (is_of_other_leader(*job) && job->touches_device()) {
          drop(job);
        }
      }
      news_.notify_all();
      gate_.wake();  // copies of this leader may be held
    }
  }
  flush();
  const MutexLock lock(mutex_);
  return wait_until(deadline, [this]() CAIRN_REQUIRES(mutex_) {
    return std::ranges::none_of(jobs_, [this](const auto& entry) CAIRN_REQUIRES(mutex_) {
      return is_of_other_leader(*entry.second) && entry.second->touches_device() && entry.second->unsettled > 0;
    });
  });
}

void RankWork::copy(const RankCopy& copy) {
  {
    const MutexLock lock(mutex_);
    auto job = std::make_shared<Job>();
    job->copy = copy;
    job->leader = joined_;
    job->generation = generation_;
    job->deadline = later(clock_.now(), copy.time_left);
    take(job);
  }
  flush();
}

void RankWork::cancel(TransferId copy) {
  {
    const MutexLock lock(mutex_);
    const auto found = jobs_.find(copy);
    if (found == jobs_.end() || found->second->is_told) {
      return;
    }
    const JobPtr job = found->second;
    cancel_under_way(*job);
    // A copy with transfers left to begin cannot be whole any more.
    if (job->next_route < job->routes.size()) {
      give_up(*job, BlockState::kCancelled, "it was cancelled");
    }
    std::erase(held_, job);
    std::erase(stalled_, job);
    push(job);
  }
  flush();
}

void RankWork::lose() {
  const MutexLock lock(mutex_);
  generation_ = 0;
  outbox_.clear();
  held_.clear();
  stalled_.clear();
  const std::map<TransferId, JobPtr> jobs = jobs_;
  for (const auto& [id, job] : jobs) {
    cancel_under_way(*job);
    if (!job->is_told) {
      give_up(*job, BlockState::kCancelled, "the leader is gone");
      push(job);
    }
  }
  watch_.fail_all();
  news_.notify_all();
  // An answer that is on its way would reach the next leader, whose generation may have the same number.
  while (is_flushing_) {
    news_.wait(mutex_);
  }
}

bool RankWork::is_quiet() const {
  const MutexLock lock(mutex_);
  return jobs_.empty();
}

template <typename Over>
bool RankWork::wait_until(TimePoint deadline, Over over) {
  while (!over()) {
    const TimePoint now = clock_.now();
    if (now >= deadline) {
      return false;
    }
    // A day at most: some libraries add the span to a time and overflow.
    news_.wait_for(mutex_, std::min<Duration>(deadline - now, std::chrono::hours(24)));
  }
  return true;
}

bool RankWork::wait_until_quiet(TimePoint deadline) {
  const MutexLock lock(mutex_);
  static_cast<void>(wait_until(deadline, [this]() CAIRN_REQUIRES(mutex_) { return jobs_.empty() || is_woken_; }));
  is_woken_ = false;
  return jobs_.empty();
}

void RankWork::wake() {
  const MutexLock lock(mutex_);
  is_woken_ = true;
  news_.notify_all();
}

void RankWork::expect(std::span<const BlockId> device_blocks) {
  const MutexLock lock(mutex_);
  watch_.expect(device_blocks);
  if (generation_ == 0 || joined_ != followed_) {
    watch_.fail_all();
  }
}

Status RankWork::wait_for_layer(std::uint32_t model_layer, TimePoint deadline) {
  const MutexLock lock(mutex_);
  if (model_layer >= watch_.layers()) {
    return fail(ErrorCode::kOutOfRange, str_cat("layer ", model_layer, " of a model with ", watch_.layers()));
  }
  const bool in_time =
      wait_until(deadline, [this, model_layer]() CAIRN_REQUIRES(mutex_) { return watch_.has_come(model_layer); });
  if (!in_time) {
    return fail(ErrorCode::kExpired, str_cat("layer ", model_layer, " of what is expected has not come in time"));
  }
  if (watch_.is_lost(model_layer)) {
    return fail(ErrorCode::kUnavailable, "some blocks that were expected will not come; compute them");
  }
  return {};
}

std::vector<BlockId> RankWork::lacking(std::uint32_t model_layer) const {
  const MutexLock lock(mutex_);
  return model_layer < watch_.layers() ? watch_.lacking(model_layer) : std::vector<BlockId>();
}

void RankWork::pass_over(std::span<const BlockId> device_blocks) {
  const MutexLock lock(mutex_);
  for (const BlockId block : device_blocks) {
    watch_.fail(index_of(block));
  }
  news_.notify_all();
}

bool RankWork::fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline) {
  std::unordered_set<std::uint32_t> fenced;
  for (const BlockId block : device_blocks) {
    fenced.insert(index_of(block));
  }
  // A save that is not over, of what a block held before. Those of another leader have failed, or not begun.
  const auto reads = [&](const Job& job, std::size_t i) CAIRN_REQUIRES(mutex_) {
    return !is_of_other_leader(job) && !job.is_told && job.copy.from == CacheLevel::kG1 &&
           job.copy.not_before < overwritten_in && job.is_well(i) && fenced.contains(job.device_block(i));
  };
  // A load that nobody waits for any more, and that has begun: told or not, it may still write.
  const auto writes = [&](const Job& job, std::size_t i) CAIRN_REQUIRES(mutex_) {
    return job.unsettled > 0 && job.copy.to == CacheLevel::kG1 &&
           (is_of_other_leader(job) || job.copy.not_before < overwritten_in) && fenced.contains(job.device_block(i));
  };
  bool was_free = true;
  {
    const MutexLock lock(mutex_);
    was_free = wait_until(deadline, [&]() CAIRN_REQUIRES(mutex_) {
      return std::ranges::none_of(jobs_, [&](const auto& entry) CAIRN_REQUIRES(mutex_) {
        const Job& job = *entry.second;
        const auto blocks = std::views::iota(std::size_t{0}, job.states.size());
        return std::ranges::any_of(
            blocks, [&](std::size_t i) CAIRN_REQUIRES(mutex_) { return reads(job, i) || writes(job, i); });
      });
    });
    // From here on, in one step under the lock: what is not over fails, and so does what comes later.
    const std::map<TransferId, JobPtr> jobs = was_free ? std::map<TransferId, JobPtr>() : jobs_;
    for (const auto& [id, job] : jobs) {
      for (std::size_t i = 0; i < job->states.size(); ++i) {
        if (reads(*job, i)) {
          spoil(*job, i, BlockState::kFailed,
                str_cat("device block ", job->device_block(i), " was given to another while it was copied"));
        }
      }
      tell_if_over(job);
    }
    for (const std::uint32_t block : fenced) {
      if (block < fences_.size()) {
        fences_[block] = std::max(fences_[block], overwritten_in);
      }
    }
  }
  flush();
  return was_free;
}

RankWork::Counts RankWork::counts() const {
  const MutexLock lock(mutex_);
  return {.copies = static_cast<std::uint32_t>(jobs_.size()), .done = done_, .failed = failed_};
}

void RankWork::check_deadlines() {
  {
    const MutexLock lock(mutex_);
    expire_late();
  }
  if (routes_ != nullptr) {
    routes_->check_deadlines();
  }
  flush();
}

void RankWork::wait_for_steps() {
  for (;;) {
    std::optional<StepMark> next;  // that a copy is held for
    Duration longest = Duration::max();
    {
      const MutexLock lock(mutex_);
      while (held_.empty() && stalled_.empty() && !is_ending_) {
        steps_.wait(mutex_);
      }
      if (is_ending_) {
        return;
      }
      TimePoint deadline = TimePoint::max();
      for (const JobPtr& job : held_) {
        if (!is_of_other_leader(*job)) {
          next = std::min(next.value_or(job->copy.not_before), job->copy.not_before);
        }
        deadline = std::min(deadline, job->deadline);
      }
      for (const JobPtr& job : stalled_) {
        deadline = std::min(deadline, job->deadline);
      }
      longest = deadline == TimePoint::max() ? Duration::max() : std::max(deadline - clock_.now(), Duration(0));
    }
    gate_.wait_for(next, longest);
    {
      const MutexLock lock(mutex_);
      start_held();
      expire_late();
    }
    flush();
  }
}

}  // namespace cairn
