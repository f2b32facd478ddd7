#include "cairn/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_text.h"

namespace cairn {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Unexpected<Error> refused(std::uint64_t size, const char* what, int error) {
  return fail(error == EMFILE || error == ENFILE || error == ENOMEM ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
              str_cat(what, " shared memory of ", bytes_text(size), ": ", errno_text(error)));
}

}  // namespace

SharedMemory::~SharedMemory() { ::close(descriptor_); }

Result<SharedMemoryPtr> SharedMemory::make(std::uint64_t size) {
  if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(ErrorCode::kInvalidArgument, str_cat("shared memory of ", size, " bytes cannot be made"));
  }
  const int descriptor = ::memfd_create("cairn-host-blocks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor == -1) {
    return refused(size, "cannot create", errno);
  }
  const std::shared_ptr<SharedMemory> memory(new SharedMemory(descriptor));
  if (::ftruncate(descriptor, static_cast<off_t>(size)) != 0 || ::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    return refused(size, "cannot size and seal", errno);
  }
  struct stat facts{};
  if (::fstat(descriptor, &facts) != 0) {
    return refused(size, "cannot look at", errno);
  }
  memory->size_ = size;
  memory->inode_ = facts.st_ino;
  return SharedMemoryPtr(memory);
}

Result<SharedMemoryPtr> SharedMemory::adopt(int descriptor) {
  const std::shared_ptr<SharedMemory> memory(new SharedMemory(descriptor));
  struct stat facts{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals == -1 || (seals & kSeals) != kSeals || ::fstat(descriptor, &facts) != 0 || facts.st_size <= 0) {
    return fail(ErrorCode::kInvalidArgument,
                "the descriptor that was sent is no sealed shared memory; run the same release on both sides");
  }
  memory->size_ = static_cast<std::uint64_t>(facts.st_size);
  memory->inode_ = facts.st_ino;
  return SharedMemoryPtr(memory);
}

std::uint64_t SharedMemory::touched() const {
  constexpr std::uint64_t kUnit = 512;  // of st_blocks, whatever the file system
  struct stat facts{};
  return ::fstat(descriptor_, &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * kUnit : 0;
}

}  // namespace cairn
