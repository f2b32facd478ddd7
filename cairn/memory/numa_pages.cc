#include "cairn/memory/numa_pages.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <map>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_text.h"

namespace cairn {

namespace {

constexpr std::uint64_t kPagesLookedAt = 4096;
constexpr std::string_view kHowToAllow = "; in a container, allow it (CAP_SYS_NICE, or a seccomp profile that has it)";

}  // namespace

Status place_on_node(std::byte* base, std::uint64_t bytes, int node, NumaWish wish) {
  constexpr int kBits = CHAR_BIT * sizeof(unsigned long);
  std::array<unsigned long, kMostNumaNodes / kBits> mask{};
  if (node < 0 || node >= kMostNumaNodes) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no memory node ", node));
  }
  mask[static_cast<std::size_t>(node / kBits)] = 1UL << (node % kBits);
  const int mode = wish == NumaWish::kRequire ? MPOL_BIND : MPOL_PREFERRED;
  // The kernel counts one bit more than it reads.
  if (syscall(SYS_mbind, base, bytes, mode, mask.data(), kMostNumaNodes + 1UL, 0U) != 0) {
    const int error = errno;
    return fail(ErrorCode::kUnavailable, str_cat("placing ", bytes_text(bytes), " on memory node ", node,
                                                 ": the kernel refused mbind: ", errno_text(error),
                                                 error == EPERM ? kHowToAllow : std::string_view{}));
  }
  return {};
}

FoundNode summarize_nodes(std::span<const int> nodes) {
  std::map<int, std::size_t> pages;
  for (const int node : nodes) {
    ++pages[std::max(node, kNoNumaNode)];
  }
  if (pages.size() == 1 && pages.begin()->first != kNoNumaNode) {
    return {.node = pages.begin()->first, .words = {}};
  }
  FoundNode found;
  for (const auto& [node, count] : pages) {
    found.words += node == kNoNumaNode ? str_cat(count, " pages not present, ")
                                       : str_cat(count, count == 1 ? " page" : " pages", " on node ", node, ", ");
  }
  found.words += str_cat("of ", nodes.size(), " looked at");
  return found;
}

Result<FoundNode> find_node(std::byte* base, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t pages = (bytes + page - 1) / page;
  const std::uint64_t count = std::min(pages, kPagesLookedAt);
  std::vector<void*> addresses;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t index = count == 1 ? 0 : (pages - 1) * i / (count - 1);
    addresses.push_back(base + index * page);
  }
  std::vector<int> nodes(count, kNoNumaNode);
  if (syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, nodes.data(), 0) != 0) {
    const int error = errno;
    return fail(ErrorCode::kUnavailable, str_cat("asking where pages are: the kernel refused move_pages: ",
                                                 errno_text(error), error == EPERM ? kHowToAllow : std::string_view{}));
  }
  return summarize_nodes(nodes);
}

}  // namespace cairn
