#include "cairn/transfer/file_transfers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
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
constexpr std::uint64_t kSumBytes = std::uint64_t{1} << 20;  // of one next of work

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

// A call that was interrupted or had no room brings nothing and is made again, this often at most.
constexpr std::uint32_t kMostTries = 64;

std::string advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free space, or preallocate the file";
    case EFBIG:
      return "; raise RLIMIT_FSIZE, or make the file smaller";
    case EBADF:
      return "; the file was closed, or is not open for this";
    default:
      return "";
  }
}

}  // namespace

const RegionPtr& FileTransfers::InFlight::file_region(const Copy& copy) const {
  return writes ? plan().destination().regions()[copy.destination_region]
                : plan().source().regions()[copy.source_region];
}

const RegionPtr& FileTransfers::InFlight::host_region(const Copy& copy) const {
  return writes ? plan().source().regions()[copy.source_region]
                : plan().destination().regions()[copy.destination_region];
}

BlockSums FileTransfers::InFlight::sum(std::uint32_t block) const {
  const BlockPair& pair = active->transfer().blocks[block].pair;
  return writes ? sum_block(plan(), PlanSide::kSource, pair.source)
                : sum_block(plan(), PlanSide::kDestination, pair.destination);
}

bool FileTransfers::InFlight::end_part(std::uint32_t block) {
  // Release and acquire: the thread that ends the last part sees the results of all other parts, the bytes that were
  // read included.
  return blocks[block].parts.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void FileTransfers::InFlight::end_block(std::uint32_t block) {
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
  return again_.empty() && reads_.empty() && writes_.empty() && free_requests_.size() == requests_.size();
}

std::string FileTransfers::describe() const { return str_cat(backend_.describe(), "; ", files_.describe()); }

void FileTransfers::add(std::shared_ptr<ActiveTransfer> taken) {
  files_.forget_gone();
  auto transfer = std::make_shared<InFlight>();
  transfer->active = std::move(taken);
  const CopyPlan& plan = transfer->plan();
  transfer->writes = plan.destination().kind() == MemoryKind::kFile;
  const bool whole_pages = has_whole_pages(plan, transfer->writes);
  transfer->access = whole_pages ? OpenFiles::Access::kWholePages : OpenFiles::Access::kPartsOfPages;
  transfer->blocks = std::vector<Block>(transfer->active->transfer().blocks.size());
  if (transfer->writes && !whole_pages) {
    // Later direct writes could pass by pages that are still to be written back, and that hold parts of other blocks.
    for (const RegionPtr& region : plan.destination().regions()) {
      files_.use_buffered(region, "its blocks are not written in whole pages; align them to 4096 bytes");
    }
  }
  const BlockLayout& host = transfer->writes ? plan.source() : plan.destination();
  for (const RegionPtr& region : host.regions()) {
    files_.use_memory(region);
  }
  (transfer->writes ? writes_ : reads_).push_back(std::move(transfer));
  news_ = true;
}

void FileTransfers::queue_requests() {
  PendingCopy next;
  while (has_room() && next_copy(next)) {
    start(std::move(next));
  }
}

bool FileTransfers::next_copy(PendingCopy& next) {
  if (!again_.empty()) {
    next = std::move(again_.front());
    again_.pop_front();
    return true;
  }
  std::deque<InFlightPtr>& turn = writes_turn_ ? writes_ : reads_;
  std::deque<InFlightPtr>& other = writes_turn_ ? reads_ : writes_;
  writes_turn_ = !writes_turn_;
  return next_copy_of(turn, next) || next_copy_of(other, next);
}

bool FileTransfers::next_copy_of(std::deque<InFlightPtr>& transfers, PendingCopy& next) {
  while (!transfers.empty()) {
    const InFlightPtr& transfer = transfers.front();
    if (transfer->next_of_copies == transfer->copies.size()) {
      begin_blocks(transfer);
    }
    if (transfer->copies.empty()) {
      transfers.pop_front();
      continue;
    }
    const Copy& copy = transfer->copies[transfer->next_of_copies++];
    const auto first = transfer->blocks.begin() + copy.first_pair;
    if (std::all_of(first, first + copy.pairs, [](const Block& block) { return block.error != nullptr; })) {
      end_parts(transfer, copy, nullptr);
      continue;
    }
    next = {.transfer = transfer, .copy = copy};
    return true;
  }
  return false;
}

// Leaves `copies` empty where there are no more blocks.
void FileTransfers::begin_blocks(const InFlightPtr& shared) {
  InFlight& transfer = *shared;
  const Transfer& whole = transfer.active->transfer();
  const auto total = static_cast<std::uint32_t>(whole.blocks.size());
  const std::uint64_t at_once =
      std::max<std::uint64_t>(1, copy_bytes_ * kCopiesAhead / transfer.plan().bytes_per_block());
  transfer.copies.clear();
  transfer.next_of_copies = 0;
  while (transfer.next_block < total) {
    const std::uint32_t first = transfer.next_block;
    const std::uint32_t begun =
        transfer.active->begin_run(first, static_cast<std::uint32_t>(std::min<std::uint64_t>(at_once, total - first)));
    if (begun == 0) {
      ++transfer.next_block;
      continue;
    }
    transfer.next_block += begun;
    pairs_.clear();
    for (std::uint32_t i = first; i < first + begun; ++i) {
      pairs_.push_back(whole.blocks[i].pair);
    }
    transfer.plan().expand(pairs_, copy_bytes_, transfer.copies);
    for (Copy& copy : transfer.copies) {
      copy.first_pair += first;
      for (std::uint32_t i = copy.first_pair; i < copy.first_pair + copy.pairs; ++i) {
        transfer.blocks[i].parts.fetch_add(1, std::memory_order_relaxed);  // nobody else looks at it yet
      }
    }
    if (transfer.writes && whole.verify != Verify::kOff) {
      sum_what_is_written(shared, first, begun);
    }
    return;
  }
}

std::uint32_t FileTransfers::blocks_of_work(const InFlight& transfer) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kSumBytes / transfer.plan().bytes_per_block()));
}

void FileTransfers::sum_what_is_written(const InFlightPtr& transfer, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = first; i < first + count; ++i) {
    transfer->blocks[i].parts.fetch_add(1, std::memory_order_relaxed);  // as above
  }
  const std::uint32_t end = first + count;
  const std::uint32_t step = blocks_of_work(*transfer);
  for (std::uint32_t from = first; from < end; from += step) {
    workers_.post([transfer, from, to = std::min(end, from + step)] {
      for (std::uint32_t i = from; i < to; ++i) {
        transfer->blocks[i].sums = transfer->sum(i);
        if (transfer->end_part(i)) {
          transfer->end_block(i);
        }
      }
    });
  }
}

void FileTransfers::check_what_was_read(const InFlightPtr& transfer, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t end = first + count;
  const std::uint32_t step = blocks_of_work(*transfer);
  for (std::uint32_t from = first; from < end; from += step) {
    workers_.post([transfer, from, to = std::min(end, from + step)] {
      for (std::uint32_t i = from; i < to; ++i) {
        transfer->blocks[i].sums = transfer->sum(i);
        transfer->end_block(i);
      }
    });
  }
}

FileTransfers::Request& FileTransfers::take_request(std::uint32_t& number) {
  CAIRN_CHECK(has_room(), "more requests than the back end takes");
  number = free_requests_.back();
  free_requests_.pop_back();
  return requests_[number];
}

void FileTransfers::release(std::uint32_t number) {
  std::byte* const buffer = requests_[number].buffer;
  requests_[number] = Request();
  requests_[number].buffer = buffer;
  free_requests_.push_back(number);
}

void FileTransfers::start(PendingCopy&& next) {
  const RegionPtr& region = next.transfer->file_region(next.copy);
  const Result<OpenFiles::Handle> file = files_.file(region, next.transfer->access);
  if (!file) {
    end_parts(next.transfer, next.copy, &next.transfer->errors.emplace_back(file.error().message));
    return;
  }
  std::uint32_t number = 0;
  Request& request = take_request(number);
  request.transfer = std::move(next.transfer);
  request.copy = next.copy;
  request.file = *file;
  const std::byte* const memory = request.host_memory();
  request.through_buffer = file->direct && reinterpret_cast<std::uintptr_t>(memory) % region->alignment() != 0;
  if (request.through_buffer) {
    if (request.buffer == nullptr) {
      void* const mapped = mmap(nullptr, copy_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) {
        end_parts(request.transfer, request.copy,
                  &request.transfer->errors.emplace_back(
                      str_cat("no ", copy_bytes_, " bytes of memory for an aligned buffer; align the host's blocks")));
        release(number);
        return;
      }
      request.buffer = static_cast<std::byte*>(mapped);
      backend_.add_memory(request.buffer, copy_bytes_);
    }
    if (request.transfer->writes) {
      std::memcpy(request.buffer, memory, request.copy.bytes);
    }
  }
  start_request(number);
}

std::byte* FileTransfers::Request::host_memory() const {
  return transfer->host_region(copy)->base() + (transfer->writes ? copy.source_offset : copy.destination_offset);
}

std::uint64_t FileTransfers::Request::file_offset() const {
  return transfer->writes ? copy.destination_offset : copy.source_offset;
}

void FileTransfers::start_request(std::uint32_t number) {
  const Request& request = requests_[number];
  backend_.queue({.operation = request.transfer->writes ? IoOperation::kWrite : IoOperation::kRead,
                  .file = request.file.number,
                  .offset = request.file_offset() + request.over,
                  .memory = (request.through_buffer ? request.buffer : request.host_memory()) + request.over,
                  .bytes = static_cast<std::uint32_t>(request.copy.bytes - request.over),
                  .token = number});
}

void FileTransfers::queue_sync(const RegionPtr& region, std::function<void(const Status&)> done) {
  // By the region's own descriptor, which was there before all writes: it learns of every error in writing back, those
  // of the buffered descriptor included.
  std::uint32_t number = 0;
  Request& request = take_request(number);
  request.synced = region;
  request.done = std::move(done);
  backend_.queue({.operation = IoOperation::kSync, .file = files_.own_file(region), .token = number});
}

void FileTransfers::handle(const IoResult& result) {
  const auto number = static_cast<std::uint32_t>(result.token);
  Request& request = requests_[number];
  if (request.synced == nullptr) {
    handle_copy(number, result.result);
    return;
  }
  if (result.result == -EINTR || result.result == -EAGAIN) {
    if (++request.tries < kMostTries) {
      backend_.queue({.operation = IoOperation::kSync, .file = files_.own_file(request.synced), .token = number});
      return;
    }
  }
  Status status;
  if (result.result < 0) {
    status = fail(ErrorCode::kIo, str_cat("flushing ", file_name(request.synced->file()), ": ",
                                          std::generic_category().message(-result.result)));
  }
  request.done(status);
  release(number);
}

void FileTransfers::handle_copy(std::uint32_t number, std::int32_t result) {
  Request& request = requests_[number];
  const std::uint64_t left = request.copy.bytes - request.over;
  const bool writes = request.transfer->writes;
  if (result > 0) {
    CAIRN_CHECK(static_cast<std::uint64_t>(result) <= left, "the kernel moved more bytes than requested");
    std::uint64_t moved = static_cast<std::uint64_t>(result);
    if (moved < left && request.file.direct) {
      moved -=
          moved % request.transfer->file_region(request.copy)->alignment();  // what follows must be aligned as well
    }
    request.over += moved;
    if (request.over == request.copy.bytes) {
      end_copy(number);
      return;
    }
    if (moved > 0) {
      request.tries = 0;
      start_request(number);
      return;
    }
  }
  if (result >= 0 && !writes) {
    fail_copy(number, str_cat("reading ", left, " bytes at ", request.file_offset() + request.over, " of ",
                              file_name(request.transfer->file_region(request.copy)->file()),
                              ": the file ends before; it was truncated"));
    return;
  }
  const bool again = result >= 0 || result == -EINTR || result == -EAGAIN;
  if ((again && ++request.tries < kMostTries) || give_up_direct(request, result)) {
    start_request(number);
    return;
  }
  fail_copy(number,
            str_cat(writes ? "writing " : "reading ", left, " bytes at ", request.file_offset() + request.over, " of ",
                    file_name(request.transfer->file_region(request.copy)->file()), ": ",
                    result == 0 ? "nothing is written" : std::generic_category().message(-result), advice(-result)));
}

bool FileTransfers::give_up_direct(Request& request, std::int32_t result) {
  if (!request.file.direct || (result != -EINVAL && result != -EOPNOTSUPP)) {
    return false;
  }
  const RegionPtr& region = request.transfer->file_region(request.copy);
  files_.use_buffered(region,
                      str_cat("the file system refuses direct I/O: ", std::generic_category().message(-result)));
  const Result<OpenFiles::Handle> file = files_.file(region, request.transfer->access);
  if (!file) {
    return false;
  }
  request.file = *file;
  news_ = true;
  return true;
}

void FileTransfers::end_copy(std::uint32_t number) {
  Request& request = requests_[number];
  if (request.through_buffer && !request.transfer->writes) {
    std::memcpy(request.host_memory(), request.buffer, request.copy.bytes);
  }
  end_parts(request.transfer, request.copy, nullptr);
  release(number);
}

void FileTransfers::fail_copy(std::uint32_t number, const std::string& error) {
  Request& request = requests_[number];
  if (request.through_buffer && !request.transfer->writes) {
    std::memcpy(request.host_memory(), request.buffer, request.over);
  }
  if (request.copy.pairs > 1) {
    split(request.transfer, request.copy, request.over);
  } else {
    end_parts(request.transfer, request.copy, &request.transfer->errors.emplace_back(error));
  }
  release(number);
}

void FileTransfers::split(const InFlightPtr& transfer, const Copy& copy, std::uint64_t over) {
  const std::uint64_t from = copy.destination_offset + over;
  const std::uint64_t to = copy.destination_offset + copy.bytes;
  for (std::uint32_t block = copy.first_pair; block < copy.first_pair + copy.pairs; ++block) {
    const BlockPair pair = transfer->active->transfer().blocks[block].pair;
    transfer->plan().expand({&pair, 1}, copy_bytes_, copies_);
    for (Copy part : copies_) {
      const std::uint64_t part_end = std::min(to, part.destination_offset + part.bytes);
      const std::uint64_t part_from = std::max(from, part.destination_offset);
      if (part.destination_region != copy.destination_region || part_from >= part_end) {
        continue;
      }
      part.source_offset += part_from - part.destination_offset;
      part.destination_offset = part_from;
      part.bytes = part_end - part_from;
      part.first_pair = block;
      transfer->blocks[block].parts.fetch_add(1, std::memory_order_relaxed);  // the part of `copy` is still to be ended
      again_.push_back({.transfer = transfer, .copy = part});
    }
  }
  end_parts(transfer, copy, nullptr);
}

void FileTransfers::end_parts(const InFlightPtr& transfer, const Copy& copy, const std::string* error) {
  const bool check_later = !transfer->writes && transfer->active->transfer().verify != Verify::kOff;
  std::uint32_t first = copy.first_pair;  // of a run that was read and is to be checked
  std::uint32_t block = copy.first_pair;
  for (; block < copy.first_pair + copy.pairs; ++block) {
    Block& ended = transfer->blocks[block];
    if (error != nullptr && ended.error == nullptr) {
      ended.error = error;
    }
    const bool failed = ended.error != nullptr;
    const bool over = transfer->end_part(block);
    if (over && check_later && !failed) {
      continue;
    }
    if (first < block) {
      check_what_was_read(transfer, first, block - first);
    }
    first = block + 1;
    if (over) {
      transfer->end_block(block);
    }
  }
  if (first < block) {
    check_what_was_read(transfer, first, block - first);
  }
}

}  // namespace cairn
