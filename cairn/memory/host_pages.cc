#include "cairn/memory/host_pages.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_limits.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/numa_topology.h"
#include "cairn/memory/parallel_chunks.h"

namespace cairn {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kTransparentPage = 2 * kMiB;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
// Measured with 16 threads: 256 MiB at a time is half as fast as 16 MiB.
constexpr std::uint64_t kTouchChunk = 16 * kMiB;
// How often touch() checks whether other processes have taken the memory.
constexpr std::uint64_t kLookAgain = 128 * kMiB;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::uint64_t small_page() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

Status map_refused(std::uint64_t bytes, int error) {
  return fail(ErrorCode::kExhausted,
              str_cat("mapping ", bytes_text(bytes), ": ", errno_text(error), address_space_text(),
                      "; see also vm.overcommit_memory and vm.max_map_count"));
}

// Asks the kernel to touch the pages if it can: a missing page is an error then, not a signal.
// Changes nothing of pages that are there.
Status touch_range(std::byte* base, std::uint64_t bytes) {
  while (madvise(base, bytes, MADV_POPULATE_WRITE) != 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) {
      continue;
    }
    if (error == EINVAL) {  // before Linux 5.14
      const std::uint64_t step = small_page();
      for (std::uint64_t offset = 0; offset < bytes; offset += step) {
        __atomic_fetch_or(reinterpret_cast<unsigned char*>(base + offset), 0, __ATOMIC_RELAXED);
      }
      return {};
    }
    return fail(ErrorCode::kExhausted, str_cat("the system gave no page while touching memory: ", errno_text(error),
                                               "; free memory, raise the pool of huge pages, or ask for less"));
  }
  return {};
}

Status check_node(const SystemRegionOptions& options) {
  if (options.numa_node == kNoNumaNode) {
    return {};
  }
  const NumaTopology topology = NumaTopology::read(options.machine_root);
  if (topology.has_node(options.numa_node)) {
    return {};
  }
  std::string nodes;
  for (const int node : topology.nodes()) {
    nodes += str_cat(" ", node);
  }
  return fail(ErrorCode::kNotFound,
              str_cat("there is no memory node ", options.numa_node, "; those with memory are:", nodes));
}

}  // namespace

HostPages::~HostPages() {
  if (base_ != nullptr) {
    munmap(base_, bytes_);
  }
}

void HostPages::note(std::string_view text) { add_note(notes_, text); }

Status HostPages::map_explicit(const SystemRegionOptions& options) {
  const bool giant = options.huge_pages == HugePages::k1GiB;
  const std::uint64_t page = giant ? kGiB : kTransparentPage;
  const std::uint64_t bytes = round_up(options.size, page);
  const HugePagePool pool = HostLimits(options.machine_root).huge_pages(page, options.numa_node);
  // The kernel reserves pages of the whole machine, also for a mapping that is bound to one node.
  void* const pages =
      pool.free < bytes / page
          ? MAP_FAILED
          : mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (giant ? MAP_HUGE_1GB : MAP_HUGE_2MB), -1, 0);
  if (pages == MAP_FAILED) {
    return fail(ErrorCode::kExhausted,
                str_cat("no huge pages: ", bytes / page, " pages of ", giant ? "1 GiB" : "2 MiB", " were requested, ",
                        pool.free, " of ", pool.total, " are free",
                        options.numa_node == kNoNumaNode ? std::string() : str_cat(" on node ", options.numa_node),
                        "; reserve more (/sys/kernel/mm/hugepages/hugepages-", page / 1024, "kB/nr_hugepages)"));
  }
  base_ = static_cast<std::byte*>(pages);
  bytes_ = bytes;
  page_bytes_ = page;
  alignment_ = page;
  from_pool_ = true;
  return {};
}

Status HostPages::map_small(const SystemRegionOptions& options) {
  page_bytes_ = small_page();
  const std::uint64_t bytes = round_up(options.size, page_bytes_);
  const bool transparent = options.huge_pages != HugePages::kNone && bytes >= kTransparentPage;
  // A huge page starts at a multiple of its size: map more, and unmap the rest.
  alignment_ = transparent ? kTransparentPage : page_bytes_;
  const std::uint64_t spare = transparent ? kTransparentPage : 0;
  void* const pages = mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return map_refused(options.size, errno);
  }
  auto* const first = static_cast<std::byte*>(pages);
  const std::uint64_t before = (spare - reinterpret_cast<std::uintptr_t>(first) % alignment_) % alignment_;
  base_ = first + before;
  bytes_ = bytes;
  if (before > 0) {
    munmap(first, before);
  }
  if (spare > before) {
    munmap(base_ + bytes_, spare - before);
  }
  if (transparent) {
    if (HostLimits(options.machine_root).transparent_pages_off() || madvise(base_, bytes_, MADV_HUGEPAGE) != 0) {
      note("no huge pages: transparent ones are off (/sys/kernel/mm/transparent_hugepage/enabled)");
    }
  } else {
    madvise(base_, bytes_, MADV_NOHUGEPAGE);  // fails only if there are no huge pages
  }
  return {};
}

// In the place of the pages that were just mapped.
Status HostPages::map_shared(const SharedMemory& memory) {
  void* const pages = mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.descriptor(), 0);
  if (pages == MAP_FAILED) {
    return map_refused(bytes_, errno);
  }
  madvise(base_, bytes_, MADV_HUGEPAGE);  // a wish: the machine says whether shared memory has huge pages
  return {};
}

Status HostPages::place(const SystemRegionOptions& options, NumaWish wish) {
  // Processes that share memory may prefer different nodes: the first that touches a page has its way.
  if (options.numa_node == kNoNumaNode || (options.shared != nullptr && wish == NumaWish::kPrefer)) {
    return {};
  }
  Status status = place_on_node(base_, bytes_, options.numa_node, wish);
  if (!status && wish == NumaWish::kPrefer) {
    note(status.error().message);
    return {};
  }
  return status;
}

Status HostPages::touch(const SystemRegionOptions& options, int strict_node) const {
  const HostLimits limits(options.machine_root);
  const std::uint64_t chunk = std::max(kTouchChunk, page_bytes_);
  return for_each_chunk({.bytes = bytes_, .chunk = chunk, .threads = options.threads, .progress = options.progress},
                        [&](std::uint64_t offset, std::uint64_t bytes) -> Status {
                          if (!from_pool_ && options.shared == nullptr && offset % kLookAgain == 0) {
                            if (Status status = limits.check_memory(std::min(bytes_ - offset, kLookAgain), strict_node);
                                !status) {
                              return status;
                            }
                          }
                          return touch_range(base_ + offset, bytes);
                        });
}

Status HostPages::verify_node(const SystemRegionOptions& options, NumaWish wish) {
  const bool asked = options.numa_node != kNoNumaNode;
  if (!asked && !NumaTopology::read(options.machine_root).has_several()) {
    return {};
  }
  const Result<FoundNode> found = find_node(base_, bytes_);
  if (!found) {
    if (asked) {
      note(str_cat("memory node not verified: ", found.error().message));
    }
    return {};
  }
  numa_node_ = found->node;
  if (!asked || found->node == options.numa_node) {
    return {};
  }
  const std::string where = found->node == kNoNumaNode ? found->words : str_cat("all are on node ", found->node);
  const std::string text =
      str_cat("memory node ", options.numa_node, " was requested, but not all pages are on it: ", where);
  if (wish == NumaWish::kRequire) {
    return fail(ErrorCode::kUnavailable, text + "; free memory on that node, or name another");
  }
  note(text);
  return {};
}

Result<HostPages> HostPages::map(const SystemRegionOptions& options, NumaWish wish) {
  if (options.size == 0) {
    return fail(ErrorCode::kInvalidArgument, "a region of 0 bytes was requested; give its size");
  }
  if (options.size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - 2 * kGiB) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a region of ", bytes_text(options.size), " is more than can be addressed; ask for less"));
  }
  if (options.shared != nullptr && options.size > options.shared->size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a region of ", options.size, " bytes; the shared memory has ",
                                                     options.shared->size(), " bytes"));
  }
  CAIRN_TRY(check_node(options));
  const HostLimits limits(options.machine_root);
  const int strict_node = wish == NumaWish::kRequire ? options.numa_node : kNoNumaNode;

  HostPages pages;
  if (options.shared == nullptr && (options.huge_pages == HugePages::k2MiB || options.huge_pages == HugePages::k1GiB)) {
    if (Status status = pages.map_explicit(options); !status) {
      pages.note(status.error().message);
    }
  }
  if (!pages.from_pool_) {
    // Checked before touching: the kernel maps more than it has, and kills a process later.
    const std::uint64_t there = options.shared == nullptr ? 0 : std::min(options.shared->touched(), options.size);
    const Status room = there == options.size ? Status() : limits.check_memory(options.size - there, strict_node);
    if (!room) {
      if (options.prefault) {
        return Unexpected(room.error());
      }
      pages.note(str_cat("not touched yet: ", room.error().message));
    }
    CAIRN_TRY(pages.map_small(options));
    if (options.shared != nullptr) {
      CAIRN_TRY(pages.map_shared(*options.shared));
    }
  }
  madvise(pages.base_, pages.bytes_, MADV_DONTFORK);
  madvise(pages.base_, pages.bytes_, MADV_DONTDUMP);
  CAIRN_TRY(pages.place(options, wish));
  if (options.prefault) {
    CAIRN_TRY(pages.touch(options, strict_node));
    CAIRN_TRY(pages.verify_node(options, wish));
  } else if (options.numa_node != kNoNumaNode) {
    pages.note("memory node not verified: the pages are not touched yet");
  }
  return pages;
}

}  // namespace cairn
