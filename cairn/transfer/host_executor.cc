#include "cairn/transfer/host_executor.h"

#include <algorithm>
#include <utility>

#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/block_walk.h"

namespace cairn {

namespace {

// From this size on the destination does not stay in a core's own cache anyway.
constexpr std::uint64_t kLeastStreamedTransfer = std::uint64_t{1} << 20;
// A share is large enough to be worth a lock, and small enough that threads end at about the same time.
constexpr std::uint64_t kLeastShare = std::uint64_t{64} << 10;
constexpr std::uint64_t kLargestShare = std::uint64_t{4} << 20;
constexpr std::uint64_t kSharesPerThread = 4;

std::uint32_t threads_for(const HostExecutor::Options& options) {
  return options.threads > 0 ? options.threads : std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
}

}  // namespace

class HostExecutor::Job {
 public:
  // Of a block that is copied in slices by several threads.
  struct Progress {
    BlockSums sums = {};
    std::uint64_t slices_left = 0;
    bool stopped = false;  // a slice was not copied: the deadline had passed
  };

  Job(std::shared_ptr<ActiveTransfer> taken, std::uint64_t threads)
      : active(std::move(taken)),
        blocks(static_cast<std::uint32_t>(active->transfer().blocks.size())),
        walk(*active->transfer().plan) {
    const std::uint64_t bytes = walk.bytes() * blocks;
    const std::uint64_t share = std::clamp(bytes / (threads * kSharesPerThread), kLeastShare, kLargestShare);
    stores = bytes >= kLeastStreamedTransfer ? Stores::kStreaming : Stores::kCached;
    slices = (walk.bytes() + share - 1) / share;
    slice_bytes = share;
    if (slices > 1) {
      progress.resize(blocks, {.slices_left = slices});
    } else {
      blocks_a_share = static_cast<std::uint32_t>(share / walk.bytes());
    }
  }

  [[nodiscard]] bool has_many_shares() const { return slices > 1 || blocks > blocks_a_share; }
  [[nodiscard]] bool makes_sums() const { return active->transfer().verify != Verify::kOff; }

  const std::shared_ptr<ActiveTransfer> active;
  const std::uint32_t blocks;
  const BlockWalk walk;
  Stores stores = Stores::kCached;
  std::uint64_t slices = 1;  // a block
  std::uint64_t slice_bytes = 0;
  std::uint32_t blocks_a_share = 1;
  // Under the executor's lock.
  std::uint32_t next_block = 0;
  std::uint64_t next_slice = 0;
  std::vector<Progress> progress;  // where blocks have more than one slice
};

HostExecutor::HostExecutor(const Clock& clock, const Options& options)
    : clock_(clock), ledger_(clock, std::max<std::size_t>(options.limit, 1)) {
  const std::uint32_t count = threads_for(options);
  threads_.reserve(count);
  try {
    for (std::uint32_t i = 0; i < count; ++i) {
      threads_.push_back(start_own_thread("cairn-copy", [this] { work(); }));
    }
  } catch (...) {
    stop();  // those that were started
    throw;
  }
}

HostExecutor::~HostExecutor() { stop(); }

void HostExecutor::stop() {
  ledger_.close();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

Result<TransferId> HostExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the plan moves blocks from ", to_string(transfer.plan->source().kind()), " to ",
                        to_string(transfer.plan->destination().kind()),
                        " memory; the host executor copies between system and pinned memory"));
  }
  return ledger_.accept(std::move(transfer));
}

bool HostExecutor::can_move(const CopyPlan& plan) const {
  return plan.source().regions().front()->is_host() && plan.destination().regions().front()->is_host();
}

std::string HostExecutor::describe() const {
  return str_cat("host copies, ", threads_.size(), threads_.size() == 1 ? " thread, " : " threads, ",
                 best_row_kernel().name);
}

void HostExecutor::work() {
  while (const std::optional<Share> share = next_share()) {
    if (share->job->slices > 1) {
      copy_slice(*share);
    } else {
      copy_blocks(*share);
    }
  }
}

std::optional<HostExecutor::Share> HostExecutor::share_of_job() {
  while (job_ != nullptr && job_->next_block < job_->blocks) {
    Job& job = *job_;
    Share share{.job = job_, .first = job.next_block, .blocks = 1};
    if (job.slices > 1) {
      if (job.next_slice == 0 && !job.active->begin(job.next_block)) {
        ++job.next_block;
        continue;
      }
      share.slice = job.next_slice++;
      if (job.next_slice == job.slices) {
        job.next_slice = 0;
        ++job.next_block;
      }
      return share;
    }
    share.blocks = job.active->begin_run(share.first, std::min(job.blocks_a_share, job.blocks - share.first));
    job.next_block += std::max(share.blocks, 1U);
    if (share.blocks > 0) {
      return share;
    }
  }
  job_.reset();
  return std::nullopt;
}

std::optional<HostExecutor::Share> HostExecutor::next_share() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (true) {
        if (std::optional<Share> share = share_of_job()) {
          return share;
        }
        if (ended_) {
          return std::nullopt;
        }
        if (!taking_) {
          taking_ = true;
          break;
        }
        more_.wait(mutex_);
      }
    }
    std::shared_ptr<ActiveTransfer> taken = ledger_.take();
    auto job = taken == nullptr ? nullptr : std::make_shared<Job>(std::move(taken), threads_.size());
    const MutexLock lock(mutex_);
    taking_ = false;
    ended_ = job == nullptr;
    // One thread at least, to take the next transfer.
    if (ended_ || job->has_many_shares()) {
      more_.notify_all();
    } else {
      more_.notify_one();
    }
    job_ = std::move(job);
  }
}

void HostExecutor::copy_blocks(const Share& share) {
  const Job& job = *share.job;
  const Transfer& transfer = job.active->transfer();
  for (std::uint32_t block = share.first; block < share.first + share.blocks; ++block) {
    const BlockPair& pair = transfer.blocks[block].pair;
    BlockSums sums;
    if (job.makes_sums()) {
      sums = job.walk.copy_and_sum(pair, 0, job.walk.bytes(), job.stores);
    } else {
      job.walk.copy(pair, 0, job.walk.bytes(), job.stores);
    }
    job.active->finish(block, sums);
  }
}

void HostExecutor::copy_slice(const Share& share) {
  Job& job = *share.job;
  const Transfer& transfer = job.active->transfer();
  const BlockPair& pair = transfer.blocks[share.first].pair;
  const std::uint64_t begin = job.walk.cut(share.slice * job.slice_bytes);
  const std::uint64_t end = job.walk.cut((share.slice + 1) * job.slice_bytes);
  const bool late = transfer.deadline != TimePoint::max() && clock_.now() >= transfer.deadline;
  BlockSums sums;
  if (late) {
    ledger_.check_deadlines();  // the outcome is that it expired, and not that we stopped
  } else if (job.makes_sums()) {
    sums = job.walk.copy_and_sum(pair, begin, end, job.stores);
  } else {
    job.walk.copy(pair, begin, end, job.stores);
  }
  Job::Progress so_far;
  {
    const MutexLock lock(mutex_);
    Job::Progress& progress = job.progress[share.first];
    progress.sums += sums;
    progress.stopped = progress.stopped || late;
    --progress.slices_left;
    so_far = progress;
  }
  if (so_far.slices_left > 0) {
    return;
  }
  if (so_far.stopped) {
    job.active->fail(share.first, "the deadline passed in the middle of its copy");
  } else {
    job.active->finish(share.first, so_far.sums);
  }
}

}  // namespace cairn
