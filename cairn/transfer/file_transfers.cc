#include "cairn/transfer/file_transfers.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/row_sums.h"

namespace cairn {

namespace {

constexpr std::uint64_t kPage = 4096;
// Blocks begin in batches of about this many copies: enough to find adjacent ones, and few that a cancelled transfer
// still carries out.
constexpr std::uint64_t kCopiesAhead = 8;
constexpr std::uint64_t kSumBytes = std::uint64_t{1} << 20;  // of one piece of work

// Every contiguous run of the plan begins and ends where a page does, on the file's side.
bool has_whole_pages(const CopyPlan& plan, bool writes) {
  const BlockLayout& layout = writes ? plan.destination() : plan.source();
  return std::ranges::all_of(plan.boxes(), [&](const CopyPlan::Box& box) {
    const RegionPtr& region = layout.regions()[writes ? box.destination_region : box.source_region];
    const std::uint64_t page = std::max(kPage, region->alignment());
    std::uint64_t all =
        writes ? box.destination_offset | box.destination_block_step : box.source_offset | box.source_block_step;
    all |= box.run_bytes;
    for (std::size_t i = box.run_levels; i < box.levels.size(); ++i) {
      if (box.levels[i].count > 1) {
        all |= writes ? box.levels[i].destination_step : box.levels[i].source_step;
      }
    }
    return all % page == 0;
  });
}

}  // namespace

const RegionPtr& FileTransfers::Job::file_region(const Copy& copy) const {
  return writes ? plan().destination().regions()[copy.destination_region]
                : plan().source().regions()[copy.source_region];
}

const RegionPtr& FileTransfers::Job::host_region(const Copy& copy) const {
  return writes ? plan().source().regions()[copy.source_region]
                : plan().destination().regions()[copy.destination_region];
}

BlockSums FileTransfers::Job::sum(std::uint32_t block) const {
  const BlockPair& pair = active->transfer().blocks[block].pair;
  return writes ? sum_block(plan(), PlanSide::kSource, pair.source)
                : sum_block(plan(), PlanSide::kDestination, pair.destination);
}

bool FileTransfers::Job::end_part(std::uint32_t block) {
  // Release and acquire: whoever ends the last part sees what the others left of theirs, the bytes that were read
  // included.
  return blocks[block].parts.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void FileTransfers::Job::end_block(std::uint32_t block) {
  if (const std::string* const error = blocks[block].error; error != nullptr) {
    active->fail(block, *error);
  } else {
    active->finish(block, blocks[block].sums);
  }
}

FileTransfers::FileTransfers(IoBackend& backend, WorkThreads& workers, std::uint64_t copy_bytes)
    : backend_(backend), workers_(workers), copy_bytes_(copy_bytes), files_(backend), requests_(backend.depth()) {
  for (std::uint32_t i = backend.depth(); i > 0; --i) {
    free_requests_.push_back(i - 1);
  }
}

FileTransfers::~FileTransfers() {
  CAIRN_CHECK(idle(), "the kernel still has requests of a file executor that ends");
  for (const Request& request : requests_) {
    if (request.buffer != nullptr) {
      backend_.remove_memory(request.buffer);
      munmap(request.buffer, copy_bytes_);
    }
  }
}

bool FileTransfers::idle() const {
  return pieces_.empty() && reads_.empty() && writes_.empty() && free_requests_.size() == requests_.size();
}

std::string FileTransfers::describe() const { return str_cat(backend_.describe(), "; ", files_.describe()); }

void FileTransfers::add(std::shared_ptr<ActiveTransfer> transfer) {
  files_.forget_gone();
  auto job = std::make_shared<Job>();
  job->active = std::move(transfer);
  const CopyPlan& plan = job->plan();
  job->writes = plan.destination().kind() == MemoryKind::kFile;
  const bool whole_pages = has_whole_pages(plan, job->writes);
  job->access = whole_pages ? OpenFiles::Access::kWholePages : OpenFiles::Access::kPartsOfPages;
  job->blocks = std::vector<Block>(job->active->transfer().blocks.size());
  if (job->writes && !whole_pages) {
    // Later direct writes could pass by pages that are still to be written back, and that hold parts of other blocks.
    for (const RegionPtr& region : plan.destination().regions()) {
      files_.use_buffered(region, "its blocks are not written in whole pages; align them to 4096 bytes");
    }
  }
  const BlockLayout& host = job->writes ? plan.source() : plan.destination();
  for (const RegionPtr& region : host.regions()) {
    files_.use_memory(region);
  }
  (job->writes ? writes_ : reads_).push_back(std::move(job));
  news_ = true;
}

void FileTransfers::queue_requests() {
  Piece piece;
  while (has_room() && next_piece(piece)) {
    start(std::move(piece));
  }
}

bool FileTransfers::next_piece(Piece& piece) {
  if (!pieces_.empty()) {
    piece = std::move(pieces_.front());
    pieces_.pop_front();
    return true;
  }
  std::deque<JobPtr>& turn = writes_turn_ ? writes_ : reads_;
  std::deque<JobPtr>& other = writes_turn_ ? reads_ : writes_;
  writes_turn_ = !writes_turn_;
  return next_piece_of(turn, piece) || next_piece_of(other, piece);
}

bool FileTransfers::next_piece_of(std::deque<JobPtr>& jobs, Piece& piece) {
  while (!jobs.empty()) {
    const JobPtr& job = jobs.front();
    if (job->next_copy == job->copies.size()) {
      begin_blocks(job);
    }
    if (job->copies.empty()) {
      jobs.pop_front();
      continue;
    }
    const Copy& copy = job->copies[job->next_copy++];
    const auto first = job->blocks.begin() + copy.first_pair;
    if (std::all_of(first, first + copy.pairs, [](const Block& block) { return block.error != nullptr; })) {
      end_parts(job, copy, nullptr);
      continue;
    }
    piece = {.job = job, .copy = copy};
    return true;
  }
  return false;
}

// Leaves `copies` empty where there are no more blocks.
void FileTransfers::begin_blocks(const JobPtr& shared) {
  Job& job = *shared;
  const Transfer& transfer = job.active->transfer();
  const auto total = static_cast<std::uint32_t>(transfer.blocks.size());
  const std::uint64_t at_once = std::max<std::uint64_t>(1, copy_bytes_ * kCopiesAhead / job.plan().bytes_per_block());
  job.copies.clear();
  job.next_copy = 0;
  while (job.next_block < total) {
    const std::uint32_t first = job.next_block;
    const std::uint32_t begun =
        job.active->begin_run(first, static_cast<std::uint32_t>(std::min<std::uint64_t>(at_once, total - first)));
    if (begun == 0) {
      ++job.next_block;
      continue;
    }
    job.next_block += begun;
    pairs_.clear();
    for (std::uint32_t i = first; i < first + begun; ++i) {
      pairs_.push_back(transfer.blocks[i].pair);
    }
    job.plan().expand(pairs_, copy_bytes_, job.copies);
    for (Copy& copy : job.copies) {
      copy.first_pair += first;
      for (std::uint32_t i = copy.first_pair; i < copy.first_pair + copy.pairs; ++i) {
        job.blocks[i].parts.fetch_add(1, std::memory_order_relaxed);  // nobody else looks at it yet
      }
    }
    if (job.writes && transfer.verify != Verify::kOff) {
      sum_what_is_written(shared, first, begun);
    }
    return;
  }
}

std::uint32_t FileTransfers::blocks_of_work(const Job& job) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kSumBytes / job.plan().bytes_per_block()));
}

void FileTransfers::sum_what_is_written(const JobPtr& job, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    job->blocks[i].parts.fetch_add(1, std::memory_order_relaxed);  // as above
  }
  const std::uint32_t end = first + count;
  const std::uint32_t step = blocks_of_work(*job);
  for (std::uint32_t from = first; from < end; from += step) {
    workers_.post([job, from, to = std::min(end, from + step)] {
      for (std::uint32_t i = from; i < to; ++i) {
        job->blocks[i].sums = job->sum(i);
        if (job->end_part(i)) {
          job->end_block(i);
        }
      }
    });
  }
}

void FileTransfers::check_what_was_read(const JobPtr& job, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t end = first + count;
  const std::uint32_t step = blocks_of_work(*job);
  for (std::uint32_t from = first; from < end; from += step) {
    workers_.post([job, from, to = std::min(end, from + step)] {
      for (std::uint32_t i = from; i < to; ++i) {
        job->blocks[i].sums = job->sum(i);
        job->end_block(i);
      }
    });
  }
}

}  // namespace cairn
