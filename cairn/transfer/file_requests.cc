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

FileTransfers::Slot& FileTransfers::take_slot(std::uint32_t& number) {
  CAIRN_CHECK(has_room(), "a request without a slot");
  number = free_slots_.back();
  free_slots_.pop_back();
  return slots_[number];
}

void FileTransfers::release(std::uint32_t number) {
  std::byte* const buffer = slots_[number].buffer;
  slots_[number] = Slot();
  slots_[number].buffer = buffer;
  free_slots_.push_back(number);
}

void FileTransfers::start(Piece&& piece) {
  const RegionPtr& region = piece.job->file_region(piece.copy);
  const Result<OpenFiles::Handle> file = files_.file(region, piece.job->access);
  if (!file) {
    end_parts(piece.job, piece.copy, &piece.job->errors.emplace_back(file.error().message));
    return;
  }
  std::uint32_t number = 0;
  Slot& slot = take_slot(number);
  slot.job = std::move(piece.job);
  slot.copy = piece.copy;
  slot.file = *file;
  const std::byte* const memory = slot.host_memory();
  slot.through_buffer = file->direct && reinterpret_cast<std::uintptr_t>(memory) % region->alignment() != 0;
  if (slot.through_buffer) {
    if (slot.buffer == nullptr) {
      void* const mapped = mmap(nullptr, copy_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) {
        end_parts(slot.job, slot.copy,
                  &slot.job->errors.emplace_back(
                      str_cat("no ", copy_bytes_, " bytes of memory for an aligned buffer; align the host's blocks")));
        release(number);
        return;
      }
      slot.buffer = static_cast<std::byte*>(mapped);
      backend_.add_memory(slot.buffer, copy_bytes_);
    }
    if (slot.job->writes) {
      std::memcpy(slot.buffer, memory, slot.copy.bytes);
    }
  }
  request(number);
}

std::byte* FileTransfers::Slot::host_memory() const {
  return job->host_region(copy)->base() + (job->writes ? copy.source_offset : copy.destination_offset);
}

std::uint64_t FileTransfers::Slot::file_offset() const {
  return job->writes ? copy.destination_offset : copy.source_offset;
}

void FileTransfers::request(std::uint32_t number) {
  const Slot& slot = slots_[number];
  backend_.queue({.operation = slot.job->writes ? IoOperation::kWrite : IoOperation::kRead,
                  .file = slot.file.number,
                  .offset = slot.file_offset() + slot.over,
                  .memory = (slot.through_buffer ? slot.buffer : slot.host_memory()) + slot.over,
                  .bytes = static_cast<std::uint32_t>(slot.copy.bytes - slot.over),
                  .token = number});
}

void FileTransfers::queue_sync(const RegionPtr& region, std::function<void(const Status&)> done) {
  // By the region's own descriptor, which was there before all writes: it learns of every error in writing back, those
  // of the buffered descriptor included.
  std::uint32_t number = 0;
  Slot& slot = take_slot(number);
  slot.synced = region;
  slot.done = std::move(done);
  backend_.queue({.operation = IoOperation::kSync, .file = files_.own_file(region), .token = number});
}

void FileTransfers::handle(const IoResult& result) {
  const auto number = static_cast<std::uint32_t>(result.token);
  Slot& slot = slots_[number];
  if (slot.synced == nullptr) {
    handle_copy(number, result.result);
    return;
  }
  if (result.result == -EINTR || result.result == -EAGAIN) {
    if (++slot.tries < kMostTries) {
      backend_.queue({.operation = IoOperation::kSync, .file = files_.own_file(slot.synced), .token = number});
      return;
    }
  }
  Status status;
  if (result.result < 0) {
    status = fail(ErrorCode::kIo, str_cat("flushing ", file_name(slot.synced->file()), ": ",
                                          std::generic_category().message(-result.result)));
  }
  slot.done(status);
  release(number);
}

void FileTransfers::handle_copy(std::uint32_t number, std::int32_t result) {
  Slot& slot = slots_[number];
  const std::uint64_t left = slot.copy.bytes - slot.over;
  const bool writes = slot.job->writes;
  if (result > 0) {
    CAIRN_CHECK(static_cast<std::uint64_t>(result) <= left, "the kernel moved more bytes than it was asked to");
    std::uint64_t moved = static_cast<std::uint64_t>(result);
    if (moved < left && slot.file.direct) {
      moved -= moved % slot.job->file_region(slot.copy)->alignment();  // what follows must be aligned as well
    }
    slot.over += moved;
    if (slot.over == slot.copy.bytes) {
      end_copy(number);
      return;
    }
    if (moved > 0) {
      slot.tries = 0;
      request(number);
      return;
    }
  }
  if (result >= 0 && !writes) {
    fail_copy(number,
              str_cat("reading ", left, " bytes at ", slot.file_offset() + slot.over, " of ",
                      file_name(slot.job->file_region(slot.copy)->file()), ": the file ends before; it was truncated"));
    return;
  }
  const bool again = result >= 0 || result == -EINTR || result == -EAGAIN;
  if ((again && ++slot.tries < kMostTries) || give_up_direct(slot, result)) {
    request(number);
    return;
  }
  fail_copy(number,
            str_cat(writes ? "writing " : "reading ", left, " bytes at ", slot.file_offset() + slot.over, " of ",
                    file_name(slot.job->file_region(slot.copy)->file()), ": ",
                    result == 0 ? "nothing is written" : std::generic_category().message(-result), advice(-result)));
}

bool FileTransfers::give_up_direct(Slot& slot, std::int32_t result) {
  if (!slot.file.direct || (result != -EINVAL && result != -EOPNOTSUPP)) {
    return false;
  }
  const RegionPtr& region = slot.job->file_region(slot.copy);
  files_.use_buffered(region,
                      str_cat("the file system refuses direct I/O: ", std::generic_category().message(-result)));
  const Result<OpenFiles::Handle> file = files_.file(region, slot.job->access);
  if (!file) {
    return false;
  }
  slot.file = *file;
  news_ = true;
  return true;
}

void FileTransfers::end_copy(std::uint32_t number) {
  Slot& slot = slots_[number];
  if (slot.through_buffer && !slot.job->writes) {
    std::memcpy(slot.host_memory(), slot.buffer, slot.copy.bytes);
  }
  end_parts(slot.job, slot.copy, nullptr);
  release(number);
}

void FileTransfers::fail_copy(std::uint32_t number, const std::string& error) {
  Slot& slot = slots_[number];
  if (slot.through_buffer && !slot.job->writes) {
    std::memcpy(slot.host_memory(), slot.buffer, slot.over);
  }
  if (slot.copy.pairs > 1) {
    split(slot.job, slot.copy, slot.over);
  } else {
    end_parts(slot.job, slot.copy, &slot.job->errors.emplace_back(error));
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
