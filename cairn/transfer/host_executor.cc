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
// A part is large enough to be worth a lock, and small enough that the threads end at about the same time.
constexpr std::uint64_t kLeastPart = std::uint64_t{64} << 10;
constexpr std::uint64_t kLargestPart = std::uint64_t{4} << 20;
constexpr std::uint64_t kPartsPerThread = 4;

std::uint32_t threads_for(const HostExecutor::Options& options) {
  return options.threads > 0 ? options.threads : std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
}

}  // namespace

class HostExecutor::InFlight {
 public:
  // Of a block that is copied in slices by several threads.
  struct Progress {
    BlockSums sums = {};
    std::uint64_t slices_left = 0;
    bool stopped = false;  // a slice was not copied: the deadline had passed
  };

  InFlight(std::shared_ptr<ActiveTransfer> taken, std::uint64_t threads)
      : active(std::move(taken)),
        blocks(static_cast<std::uint32_t>(active->transfer().blocks.size())),
        walk(*active->transfer().plan) {
    const std::uint64_t bytes = walk.bytes() * blocks;
    const std::uint64_t part_bytes = std::clamp(bytes / (threads * kPartsPerThread), kLeastPart, kLargestPart);
    stores = bytes >= kLeastStreamedTransfer ? Stores::kStreaming : Stores::kCached;
    slices = (walk.bytes() + part_bytes - 1) / part_bytes;
    slice_bytes = part_bytes;
    if (slices > 1) {
      progress.resize(blocks, {.slices_left = slices});
    } else {
      blocks_of_part = static_cast<std::uint32_t>(part_bytes / walk.bytes());
    }
  }

  [[nodiscard]] bool has_many_parts() const { return slices > 1 || blocks > blocks_of_part; }
  [[nodiscard]] bool makes_sums() const { return active->transfer().verify != Verify::kOff; }

  const std::shared_ptr<ActiveTransfer> active;
  const std::uint32_t blocks;
  const BlockWalk walk;
  Stores stores = Stores::kCached;
  std::uint64_t slices = 1;  // a block
  std::uint64_t slice_bytes = 0;
  std::uint32_t blocks_of_part = 1;
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
  while (const std::optional<Part> part = next_part()) {
    if (part->transfer->slices > 1) {
      copy_slice(*part);
    } else {
      copy_blocks(*part);
    }
  }
}

std::optional<HostExecutor::Part> HostExecutor::part_of_current() {
  while (current_ != nullptr && current_->next_block < current_->blocks) {
    InFlight& transfer = *current_;
    Part part{.transfer = current_, .first = transfer.next_block, .blocks = 1};
    if (transfer.slices > 1) {
      if (transfer.next_slice == 0 && !transfer.active->begin(transfer.next_block)) {
        ++transfer.next_block;
        continue;
      }
      part.slice = transfer.next_slice++;
      if (transfer.next_slice == transfer.slices) {
        transfer.next_slice = 0;
        ++transfer.next_block;
      }
      return part;
    }
    part.blocks =
        transfer.active->begin_run(part.first, std::min(transfer.blocks_of_part, transfer.blocks - part.first));
    transfer.next_block += std::max(part.blocks, 1U);
    if (part.blocks > 0) {
      return part;
    }
  }
  current_.reset();
  return std::nullopt;
}

std::optional<HostExecutor::Part> HostExecutor::next_part() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (true) {
        if (std::optional<Part> part = part_of_current()) {
          return part;
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
    auto transfer = taken == nullptr ? nullptr : std::make_shared<InFlight>(std::move(taken), threads_.size());
    const MutexLock lock(mutex_);
    taking_ = false;
    ended_ = transfer == nullptr;
    // One thread at least, to take the next transfer.
    if (ended_ || transfer->has_many_parts()) {
      more_.notify_all();
    } else {
      more_.notify_one();
    }
    current_ = std::move(transfer);
  }
}

void HostExecutor::copy_blocks(const Part& part) {
  const InFlight& transfer = *part.transfer;
  const std::vector<TransferBlock>& blocks = transfer.active->transfer().blocks;
  for (std::uint32_t block = part.first; block < part.first + part.blocks; ++block) {
    const BlockPair& pair = blocks[block].pair;
    BlockSums sums;
    if (transfer.makes_sums()) {
      sums = transfer.walk.copy_and_sum(pair, 0, transfer.walk.bytes(), transfer.stores);
    } else {
      transfer.walk.copy(pair, 0, transfer.walk.bytes(), transfer.stores);
    }
    transfer.active->finish(block, sums);
  }
}

void HostExecutor::copy_slice(const Part& part) {
  InFlight& transfer = *part.transfer;
  const TimePoint deadline = transfer.active->transfer().deadline;
  const BlockPair& pair = transfer.active->transfer().blocks[part.first].pair;
  const std::uint64_t begin = transfer.walk.cut(part.slice * transfer.slice_bytes);
  const std::uint64_t end = transfer.walk.cut((part.slice + 1) * transfer.slice_bytes);
  const bool late = deadline != TimePoint::max() && clock_.now() >= deadline;
  BlockSums sums;
  if (late) {
    ledger_.check_deadlines();  // the outcome is that it expired, and not that we stopped
  } else if (transfer.makes_sums()) {
    sums = transfer.walk.copy_and_sum(pair, begin, end, transfer.stores);
  } else {
    transfer.walk.copy(pair, begin, end, transfer.stores);
  }
  InFlight::Progress so_far;
  {
    const MutexLock lock(mutex_);
    InFlight::Progress& progress = transfer.progress[part.first];
    progress.sums += sums;
    progress.stopped = progress.stopped || late;
    --progress.slices_left;
    so_far = progress;
  }
  if (so_far.slices_left > 0) {
    return;
  }
  if (so_far.stopped) {
    transfer.active->fail(part.first, "the deadline passed in the middle of its copy");
  } else {
    transfer.active->finish(part.first, so_far.sums);
  }
}

}  // namespace cairn
