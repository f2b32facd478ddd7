#include "cairn/base/page_array.h"

#include <sys/mman.h>

#include "cairn/base/str_cat.h"

namespace cairn::internal {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Rounds up to whole huge pages if there is at least one, so that huge pages can back all of it.
std::size_t mapped_bytes(std::size_t bytes) {
  return bytes < kHugePage ? bytes : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

Result<void*> map_pages(std::size_t bytes) {
  if (bytes == 0) {
    return static_cast<void*>(nullptr);
  }
  const std::size_t length = mapped_bytes(bytes);
  void* pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return fail(ErrorCode::kExhausted,
                str_cat("the system has no memory for a table of ", bytes, " bytes; ask for fewer blocks"));
  }
  if (length >= kHugePage) {
    madvise(pages, length, MADV_HUGEPAGE);  // a hint: small pages work too, but are slower
  }
  return pages;
}

void unmap_pages(void* pages, std::size_t bytes) {
  if (pages != nullptr) {
    munmap(pages, mapped_bytes(bytes));
  }
}

}  // namespace cairn::internal
