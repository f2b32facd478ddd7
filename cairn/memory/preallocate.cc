#include "cairn/memory/preallocate.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace cairn {

Preallocated preallocate(int file, std::uint64_t bytes, Fallocate reserve) {
  int result = 0;
  do {
    result = reserve(file, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    return {};
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    return {.error = errno, .is_reserved = false};
  }
  struct stat facts{};
  if (fstat(file, &facts) != 0) {
    return {.error = errno, .is_reserved = false};
  }
  const bool is_long_enough = static_cast<std::uint64_t>(facts.st_size) >= bytes;
  if (!is_long_enough && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return {.error = errno, .is_reserved = false};
  }
  return {.is_reserved = false};
}

}  // namespace cairn
