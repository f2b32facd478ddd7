#include "cairn/memory/system_region.h"

#include <sys/mman.h>

#include <memory>

#include "cairn/memory/host_limits.h"
#include "cairn/memory/host_pages.h"

namespace cairn {

Result<RegionPtr> system_region(const SystemRegionOptions& options) {
  SystemRegionOptions wanted = options;
  wanted.prefault = options.prefault || options.lock;  // locking touches all pages anyway
  CAIRN_TRY_ASSIGN(HostPages pages, HostPages::map(wanted, NumaWish::kRequire));
  if (options.lock) {
    CAIRN_TRY(lock_pages(pages.base(), pages.bytes()));
  }
  RegionFacts facts = {.kind = MemoryKind::kSystem,
                       .base = pages.base(),
                       .size = options.size,
                       .alignment = pages.alignment(),
                       .numa_node = pages.numa_node(),
                       .notes = pages.notes()};
  auto unmap = [base = pages.base(), bytes = pages.bytes()] { munmap(base, bytes); };
  pages.release();
  return std::make_shared<const Region>(std::move(facts), std::move(unmap));
}

}  // namespace cairn
