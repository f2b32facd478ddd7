#include "cairn/memory/host_limits.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_text.h"

namespace cairn {

namespace {

// Memory that is left to others: page tables, buffers, the engine. MemAvailable is only an estimate.
constexpr std::uint64_t kLeastLeft = std::uint64_t{64} << 20;
constexpr std::uint64_t kPartLeft = 64;

void narrow(MemoryRoom& room, std::uint64_t there, const std::string& limit) {
  const std::uint64_t left = std::max(kLeastLeft, there / kPartLeft);
  const std::uint64_t bytes = there > left ? there - left : 0;
  if (bytes < room.bytes) {
    room.bytes = bytes;
    room.limit = str_cat(limit, ", of which ", bytes_text(std::min(left, there)), " are left to others");
  }
}

// The files of a control group, in one version of the interface.
struct GroupFiles {
  std::string_view folder;
  std::string_view maximum;
  std::string_view usage;
  std::string_view inactive_file;
  std::string_view active_file;
};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "};
constexpr GroupFiles kVersion2Beside1 = {"/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file ",
                                         "active_file "};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file "};

// Applies the limits of a group and of the groups above it. In a container the path may start outside of what is mounted;
// what is mounted is the group of the container then.
void narrow_by_groups(MemoryRoom& room, const std::string& machine_root, const GroupFiles& files,
                      std::string_view path) {
  for (;;) {
    while (!path.empty() && path.back() == '/') {
      path.remove_suffix(1);
    }
    const std::string folder = str_cat(machine_root, files.folder, path, "/");
    // -1: the file is missing, or says there is no limit.
    const std::int64_t maximum = read_number(folder + std::string(files.maximum)).value_or(-1);
    const std::int64_t usage = read_number(folder + std::string(files.usage)).value_or(-1);
    if (maximum >= 0 && usage >= 0) {
      // The kernel drops the page cache of the group before it kills a process.
      const std::string stat = read_text(folder + "memory.stat").value_or("");
      const std::uint64_t cache =
          find_field(stat, files.inactive_file).value_or(0) + find_field(stat, files.active_file).value_or(0);
      const auto used = static_cast<std::uint64_t>(usage) - std::min(static_cast<std::uint64_t>(usage), cache);
      const auto most = static_cast<std::uint64_t>(maximum);
      narrow(room, most - std::min(most, used),
             str_cat("the control group ", path.empty() ? "/" : path, " may use ", bytes_text(most), " (",
                     files.maximum, ") and uses ", bytes_text(used)));
    }
    if (path.empty()) {
      return;
    }
    const std::size_t parent = path.rfind('/');
    path = path.substr(0, parent == std::string_view::npos ? 0 : parent);
  }
}

}  // namespace

MemoryRoom HostLimits::memory(int numa_node) const {
  MemoryRoom room;
  const std::string meminfo = read_text(machine_root_ + "/proc/meminfo").value_or("");
  if (const std::optional<std::uint64_t> available = find_field(meminfo, "MemAvailable:")) {
    narrow(room, *available, str_cat("MemAvailable of the machine is ", bytes_text(*available)));
  }
  if (numa_node != kNoNumaNode) {
    const std::string node =
        read_text(str_cat(machine_root_, "/sys/devices/system/node/node", numa_node, "/meminfo")).value_or("");
    if (const std::optional<std::uint64_t> free = find_field(node, "MemFree:")) {
      const std::uint64_t there = *free + find_field(node, "Active(file):").value_or(0) +
                                  find_field(node, "Inactive(file):").value_or(0) +
                                  find_field(node, "SReclaimable:").value_or(0);
      narrow(room, there, str_cat("memory node ", numa_node, " has ", bytes_text(there), " free or in the page cache"));
    }
  }
  const std::string groups = read_text(machine_root_ + "/proc/self/cgroup").value_or("");
  for (std::string_view rest = groups; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string controllers = str_cat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string_view path = line.substr(second + 1);
    if (controllers == ",,") {
      narrow_by_groups(room, machine_root_, kVersion2, path);
      narrow_by_groups(room, machine_root_, kVersion2Beside1, path);
    } else if (controllers.find(",memory,") != std::string::npos) {
      narrow_by_groups(room, machine_root_, kVersion1, path);
    }
  }
  return room;
}

Status HostLimits::check_memory(std::uint64_t bytes, int numa_node) const {
  const MemoryRoom room = memory(numa_node);
  if (bytes <= room.bytes) {
    return {};
  }
  return fail(ErrorCode::kExhausted, str_cat("no memory for ", bytes_text(bytes), ": ", room.limit,
                                             "; ask for less, free memory, or raise that limit"));
}

HugePagePool HostLimits::huge_pages(std::uint64_t page_bytes, int numa_node) const {
  const std::string where = numa_node == kNoNumaNode ? str_cat(machine_root_, "/sys/kernel/mm/hugepages/hugepages-")
                                                     : str_cat(machine_root_, "/sys/devices/system/node/node",
                                                               numa_node, "/hugepages/hugepages-");
  const std::string folder = str_cat(where, page_bytes / 1024, "kB/");
  const auto number = [&](const char* name) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(read_number(folder + name).value_or(0), 0));
  };
  const std::uint64_t free = number("free_hugepages");
  // The kernel counts reserved pages for the machine, not for a node.
  return {.page_bytes = page_bytes,
          .total = number("nr_hugepages"),
          .free = free - std::min(free, number("resv_hugepages"))};
}

bool HostLimits::transparent_pages_off() const {
  const std::optional<std::string> text = read_text(machine_root_ + "/sys/kernel/mm/transparent_hugepage/enabled");
  return !text || text->find("[never]") != std::string::npos;
}

std::string address_space_text() {
  struct Named {
    int resource;
    std::string_view name;
    std::string_view field;
  };
  const std::string status = read_text("/proc/self/status").value_or("");
  std::string text;
  for (const Named& named : {Named{RLIMIT_AS, "RLIMIT_AS", "VmSize:"}, Named{RLIMIT_DATA, "RLIMIT_DATA", "VmData:"}}) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(named.resource), &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      text += str_cat("; ", named.name, " is ", bytes_text(limit.rlim_cur), ", of which ",
                      bytes_text(find_field(status, named.field).value_or(0)), " are used: raise it or ask for less");
    }
  }
  return text;
}

Status lock_pages(std::byte* base, std::uint64_t bytes) {
  // A system call, because sanitizers replace mlock() by a function that does nothing.
  if (syscall(SYS_mlock, base, bytes) == 0) {
    return {};
  }
  const int error = errno;
  syscall(SYS_munlock, base, bytes);  // the pages that were locked before the error
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::uint64_t locked = find_field(read_text("/proc/self/status").value_or(""), "VmLck:").value_or(0);
  return fail(ErrorCode::kExhausted,
              str_cat("locking ", bytes_text(bytes), ": ", errno_text(error), "; RLIMIT_MEMLOCK is ",
                      limit.rlim_cur == RLIM_INFINITY ? std::string("unlimited") : bytes_text(limit.rlim_cur), " and ",
                      bytes_text(locked),
                      " are locked already; raise it (ulimit -l, LimitMEMLOCK= of the service, "
                      "--ulimit memlock= of the container) or grant CAP_IPC_LOCK"));
}

}  // namespace cairn
