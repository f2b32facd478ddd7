// The half of FileTransfers that speaks with the backend: copies become requests, results become ends of blocks.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/file_transfers.h"

namespace cairn {

namespace {

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

void FileTransfers::start(Piece&& piece) {
  const RegionPtr& region = piece.job->file_region(piece.copy);
  const Result<OpenFiles::Handle> file = files_.file(region, piece.job->access);
  if (!file) {
    end_parts(piece.job, piece.copy, &piece.job->errors.emplace_back(file.error().message));
    return;
  }
  std::uint32_t number = 0;
  Request& request = take_request(number);
  request.job = std::move(piece.job);
  request.copy = piece.copy;
  request.file = *file;
  const std::byte* const memory = request.host_memory();
  request.through_buffer = file->direct && reinterpret_cast<std::uintptr_t>(memory) % region->alignment() != 0;
  if (request.through_buffer) {
    if (request.buffer == nullptr) {
      void* const mapped = mmap(nullptr, copy_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) {
        end_parts(request.job, request.copy,
                  &request.job->errors.emplace_back(
                      str_cat("no ", copy_bytes_, " bytes of memory for an aligned buffer; align the host's blocks")));
        release(number);
        return;
      }
      request.buffer = static_cast<std::byte*>(mapped);
      backend_.add_memory(request.buffer, copy_bytes_);
    }
    if (request.job->writes) {
      std::memcpy(request.buffer, memory, request.copy.bytes);
    }
  }
  start_request(number);
}

std::byte* FileTransfers::Request::host_memory() const {
  return job->host_region(copy)->base() + (job->writes ? copy.source_offset : copy.destination_offset);
}

std::uint64_t FileTransfers::Request::file_offset() const {
  return job->writes ? copy.destination_offset : copy.source_offset;
}

void FileTransfers::start_request(std::uint32_t number) {
  const Request& request = requests_[number];
  backend_.queue({.operation = request.job->writes ? IoOperation::kWrite : IoOperation::kRead,
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
  const bool writes = request.job->writes;
  if (result > 0) {
    CAIRN_CHECK(static_cast<std::uint64_t>(result) <= left, "the kernel moved more bytes than it was asked to");
    std::uint64_t moved = static_cast<std::uint64_t>(result);
    if (moved < left && request.file.direct) {
      moved -= moved % request.job->file_region(request.copy)->alignment();  // what follows must be aligned as well
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
                              file_name(request.job->file_region(request.copy)->file()),
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
                    file_name(request.job->file_region(request.copy)->file()), ": ",
                    result == 0 ? "nothing is written" : std::generic_category().message(-result), advice(-result)));
}

bool FileTransfers::give_up_direct(Request& request, std::int32_t result) {
  if (!request.file.direct || (result != -EINVAL && result != -EOPNOTSUPP)) {
    return false;
  }
  const RegionPtr& region = request.job->file_region(request.copy);
  files_.use_buffered(region,
                      str_cat("the file system refuses direct I/O: ", std::generic_category().message(-result)));
  const Result<OpenFiles::Handle> file = files_.file(region, request.job->access);
  if (!file) {
    return false;
  }
  request.file = *file;
  news_ = true;
  return true;
}

void FileTransfers::end_copy(std::uint32_t number) {
  Request& request = requests_[number];
  if (request.through_buffer && !request.job->writes) {
    std::memcpy(request.host_memory(), request.buffer, request.copy.bytes);
  }
  end_parts(request.job, request.copy, nullptr);
  release(number);
}

void FileTransfers::fail_copy(std::uint32_t number, const std::string& error) {
  Request& request = requests_[number];
  if (request.through_buffer && !request.job->writes) {
    std::memcpy(request.host_memory(), request.buffer, request.over);
  }
  if (request.copy.pairs > 1) {
    split(request.job, request.copy, request.over);
  } else {
    end_parts(request.job, request.copy, &request.job->errors.emplace_back(error));
  }
  release(number);
}

void FileTransfers::split(const JobPtr& job, const Copy& copy, std::uint64_t over) {
  const std::uint64_t from = copy.destination_offset + over;
  const std::uint64_t to = copy.destination_offset + copy.bytes;
  for (std::uint32_t block = copy.first_pair; block < copy.first_pair + copy.pairs; ++block) {
    const BlockPair pair = job->active->transfer().blocks[block].pair;
    job->plan().expand({&pair, 1}, copy_bytes_, copies_);
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
      job->blocks[block].parts.fetch_add(1, std::memory_order_relaxed);  // the part of `copy` is still to be ended
      pieces_.push_back({.job = job, .copy = part});
    }
  }
  end_parts(job, copy, nullptr);
}

void FileTransfers::end_parts(const JobPtr& job, const Copy& copy, const std::string* error) {
  const bool check_later = !job->writes && job->active->transfer().verify != Verify::kOff;
  std::uint32_t first = copy.first_pair;  // of a run that was read and is to be checked
  std::uint32_t block = copy.first_pair;
  for (; block < copy.first_pair + copy.pairs; ++block) {
    Block& ended = job->blocks[block];
    if (error != nullptr && ended.error == nullptr) {
      ended.error = error;
    }
    const bool failed = ended.error != nullptr;
    const bool over = job->end_part(block);
    if (over && check_later && !failed) {
      continue;
    }
    if (first < block) {
      check_what_was_read(job, first, block - first);
    }
    first = block + 1;
    if (over) {
      job->end_block(block);
    }
  }
  if (first < block) {
    check_what_was_read(job, first, block - first);
  }
}

}  // namespace cairn
