#include "cairn/memory/direct_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_text.h"

namespace cairn {

namespace {

constexpr std::uint64_t kLeastAlignment = 512;
constexpr std::uint64_t kMostAlignment = 65536;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

// Reads, and writes if `probe` allows, at the beginning and the end of the file. Returns 0 or the error.
int try_alignment(int descriptor, std::uint64_t size, std::uint64_t alignment, DirectProbe probe) {
  // At an odd multiple of the alignment: memory that is aligned better would not test it.
  const std::unique_ptr<void, Freed> memory(std::aligned_alloc(2 * alignment, 4 * alignment));
  if (memory == nullptr) {
    return ENOMEM;
  }
  std::byte* const buffer = static_cast<std::byte*>(memory.get()) + alignment;
  for (const std::uint64_t offset : {std::uint64_t{0}, size - alignment}) {
    std::memset(buffer, 0, alignment);
    if (probe == DirectProbe::kMayWrite) {
      if (const ssize_t written = pwrite(descriptor, buffer, alignment, static_cast<off_t>(offset));
          written != static_cast<ssize_t>(alignment)) {
        return written < 0 ? errno : EIO;
      }
    }
    if (const ssize_t got = pread(descriptor, buffer, alignment, static_cast<off_t>(offset));
        got != static_cast<ssize_t>(alignment)) {
      return got < 0 ? errno : EIO;
    }
  }
  return 0;
}

// The alignment that the file system names (Linux 6.1); 0 if it has no direct I/O.
std::uint64_t least_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx facts{};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 && (facts.stx_mask & STATX_DIOALIGN) != 0) {
    if (facts.stx_dio_offset_align == 0) {
      return 0;
    }
    return std::max<std::uint64_t>(std::bit_ceil(std::max(facts.stx_dio_mem_align, facts.stx_dio_offset_align)),
                                   kLeastAlignment);
  }
#else
  static_cast<void>(descriptor);
#endif
  return kLeastAlignment;
}

}  // namespace

DirectIo probe_direct_io(int descriptor, std::uint64_t size, DirectProbe probe) {
  const std::uint64_t least = least_alignment(descriptor);
  if (least == 0) {
    return {.why_not = "the file system has no direct I/O for this file"};
  }
  for (std::uint64_t alignment = least; alignment <= std::max(least, kMostAlignment); alignment *= 2) {
    if (size % alignment != 0) {
      return {.why_not = str_cat("its size of ", size, " bytes is not a multiple of the ", alignment,
                                 " bytes that direct I/O needs here; round it up")};
    }
    const int error = try_alignment(descriptor, size, alignment, probe);
    if (error == 0) {
      return {.works = true, .alignment = alignment};
    }
    if (error != EINVAL) {
      return {.why_not = str_cat("trying direct I/O: ", errno_text(error))};
    }
  }
  return {.why_not = str_cat("the file system refused direct I/O at every alignment up to ", kMostAlignment, " bytes")};
}

}  // namespace cairn
