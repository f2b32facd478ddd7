#include "cairn/tier/disk_scrub.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/system_region.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

namespace {

constexpr std::uint64_t kMostReadBytes = std::uint64_t{4} << 20;  // more at once would be felt by others
constexpr std::uint32_t kMostReadBlocks = 64;
constexpr std::uint32_t kBlocksAtOnce = 4096;  // looked at under the pool's lock
// While the tier is out of use or its executor is full.
constexpr Duration kRetry = std::chrono::seconds(1);

Duration time_for(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  return std::chrono::ceil<Duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / static_cast<double>(bytes_per_second)));
}

}  // namespace

// Blocks that are read together, from before the submission until nothing touches the buffer any more.
struct DiskScrub::Read {
  std::vector<BlockId> block_ids = {};
  std::vector<BlockFacts> facts = {};       // one for each
  std::optional<PinnedBlocks> pinned = {};  // of a second read
  std::uint32_t position = 0;               // where the walk was before a first read
  bool ends_pass = false;
};

Result<BlockLayoutPtr> DiskScrub::make_buffer(const Tier& disk, std::uint64_t bytes_per_second) {
  const std::uint64_t bytes = std::min(kMostReadBytes, bytes_per_second);
  const BlockLayout::Options options{
      .shape = disk.layout()->shape(),
      .arrangement = Arrangement::kContiguousNhd,
      .blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / disk.block_bytes(), 1, kMostReadBlocks)),
      .alignment = DiskFile::kAlignment};
  CAIRN_TRY_ASSIGN(std::vector<std::uint64_t> sizes, BlockLayout::region_sizes(options));
  CAIRN_TRY_ASSIGN(RegionPtr region, system_region({.size = sizes.front(), .huge_pages = HugePages::kNone}));
  return BlockLayout::make(options, {std::move(region)});
}

DiskScrub::DiskScrub(Tier& disk, CopyPlanPtr plan, TransferExecutor& executor, const Clock& clock,
                     const Options& options, std::function<void()> wake)
    : disk_(disk),
      plan_(std::move(plan)),
      executor_(executor),
      clock_(clock),
      options_(options),
      wake_(std::move(wake)),
      batch_(plan_->destination().blocks()),
      next_read_(clock.now()),
      next_pass_(clock.now()) {}

Result<std::unique_ptr<DiskScrub>> DiskScrub::make(Tier& disk, BlockLayoutPtr buffer, TransferExecutor& executor,
                                                   const Clock& clock, const Options& options,
                                                   std::function<void()> wake) {
  CAIRN_CHECK(disk.pool() != nullptr && options.bytes_per_second > 0, "a scrub has a pool to walk and a rate");
  CAIRN_TRY_ASSIGN(CopyPlanPtr plan, CopyPlan::make(disk.layout(), std::move(buffer)));
  if (!executor.can_move(*plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(executor.describe(), " cannot read blocks of ", to_string(disk.level()), " to verify them"));
  }
  return std::unique_ptr<DiskScrub>(new DiskScrub(disk, std::move(plan), executor, clock, options, std::move(wake)));
}

// Blocks that seem to be wrong are not left waiting for the next pass.
TimePoint DiskScrub::due() const {
  return suspects_.empty() && status_.position == 0 ? std::max(next_read_, next_pass_) : next_read_;
}

bool DiskScrub::pump() {
  const TimePoint now = clock_.now();
  const bool is_up = disk_.is_up(TierUse::kReading);
  std::vector<BlockKey> suspects;
  std::uint32_t position = 0;
  {
    const MutexLock lock(mutex_);
    if (is_over_ || is_reading_ || now < due()) {
      return false;
    }
    if (!is_up) {
      next_read_ = now + kRetry;
      return false;
    }
    std::swap(suspects, suspects_);
    position = status_.position;
    if (suspects.empty() && position == 0) {
      next_pass_ = now + options_.shortest_pass;
    }
  }
  return suspects.empty() ? read_next(position, now) : read_again(suspects, now);
}

bool DiskScrub::read_next(std::uint32_t position, TimePoint now) {
  const auto read = std::make_shared<Read>();
  read->position = position;
  std::vector<ListedBlock> found;
  const std::uint32_t end = disk_.pool()->list_blocks(position, kBlocksAtOnce, batch_, found);
  for (ListedBlock& each : found) {
    read->block_ids.push_back(each.block_id);
    read->facts.push_back(each.facts);
  }
  read->ends_pass = end == disk_.pool()->capacity();
  {
    const MutexLock lock(mutex_);
    status_.position = read->ends_pass ? 0 : end;
    status_.passes += read->ends_pass && found.empty() ? 1 : 0;
  }
  if (found.empty()) {
    return !read->ends_pass;
  }
  submit(read, now);
  return true;
}

bool DiskScrub::read_again(const std::vector<BlockKey>& suspects, TimePoint now) {
  const auto read = std::make_shared<Read>();
  read->pinned.emplace(disk_.pool()->hold(suspects));
  read->block_ids.assign(read->pinned->block_ids().begin(), read->pinned->block_ids().end());
  read->facts = read->pinned->facts();
  if (!read->block_ids.empty()) {
    submit(read, now);
  }
  return true;
}

void DiskScrub::submit(const std::shared_ptr<Read>& read, TimePoint now) {
  Transfer transfer{.plan = plan_, .verify = Verify::kMake, .deadline = now + options_.deadline};
  transfer.blocks.reserve(read->block_ids.size());
  for (std::uint32_t i = 0; i < read->block_ids.size(); ++i) {
    transfer.blocks.push_back(
        {.pair = {index_of(read->block_ids[i]), i}, .tag = disk_.tag_of(read->facts[i].block.key)});
  }
  transfer.done = [this, read](TransferOutcome&& outcome) { on_done(*read, outcome); };
  transfer.settled = [this, read] { settled(*read); };
  {
    const MutexLock lock(mutex_);
    is_reading_ = true;
    next_read_ = now + time_for(read->block_ids.size() * disk_.block_bytes(), options_.bytes_per_second);
  }
  if (const Result<TransferId> id = executor_.submit(std::move(transfer)); !id) {
    // The executor is full: the walk goes back, and what is suspect stays so.
    const MutexLock lock(mutex_);
    is_reading_ = false;
    next_read_ = now + kRetry;
    if (!read->pinned) {
      status_.position = read->position;
      next_pass_ = std::min(next_pass_, next_read_);
    } else {
      for (const BlockFacts& each : read->facts) {
        suspects_.push_back(each.block.key);
      }
    }
  }
}

void DiskScrub::on_done(const Read& read, const TransferOutcome& outcome) {
  std::uint64_t right = 0;
  std::uint64_t failed = 0;
  std::vector<BlockKey> wrong;
  for (std::size_t i = 0; i < outcome.blocks.size(); ++i) {
    const BlockOutcome& block = outcome.blocks[i];
    if (block.state == BlockState::kDone && block.checksum == Checksum{read.facts[i].checksum}) {
      ++right;
    } else if (block.state == BlockState::kDone || block.state == BlockState::kMismatch) {
      wrong.push_back(read.facts[i].block.key);
    } else if (block.state != BlockState::kCancelled) {
      ++failed;
    }
  }
  if (read.pinned && !read.pinned->is_current()) {
    wrong.clear();  // after a fence the keys may be those of other blocks
  }
  const std::uint64_t read_blocks = right + wrong.size();
  {
    const MutexLock lock(mutex_);
    status_.blocks += right;
    status_.bytes += read_blocks * disk_.block_bytes();
    status_.unreadable += failed;
    if (read.pinned) {
      status_.damaged += wrong.size();
    } else {
      suspects_ = wrong;
    }
  }
  if (read.pinned && !wrong.empty()) {
    disk_.verified(right, wrong.size(),
                   str_cat("block ", wrong.front().to_string(), " has other bytes than it was stored with"));
    disk_.drop(wrong);
  } else if (right > 0) {
    disk_.verified(right, 0, {});
  } else if (failed > 0 && wrong.empty()) {
    disk_.failed(TierUse::kReading, outcome.error);
  }
}

void DiskScrub::settled(Read& read) {
  read.pinned.reset();
  {
    const MutexLock lock(mutex_);
    is_reading_ = false;
    status_.passes += read.ends_pass ? 1 : 0;
  }
  wake_();
}

std::optional<TimePoint> DiskScrub::next_time() const {
  const MutexLock lock(mutex_);
  return is_over_ || is_reading_ ? std::nullopt : std::optional(due());
}

void DiskScrub::end() {
  const MutexLock lock(mutex_);
  is_over_ = true;
}

ScrubStatus DiskScrub::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace cairn
