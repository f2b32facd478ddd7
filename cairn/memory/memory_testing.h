// Helpers of the tests of regions: temporary folders, machines made of files, child processes with their own limits.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "cairn/base/str_cat.h"

namespace cairn {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A temporary folder, removed when it is destroyed.
class TestFolder {
 public:
  TestFolder() {
    std::string name = ::testing::TempDir() + "cairn_memory_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string in(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(in(name)).parent_path());
    std::ofstream(in(name)) << text;
  }

 private:
  std::string path_;
};

// A folder that looks like /proc and /sys of a machine with plenty of memory in one node.
class FakeMachine {
 public:
  FakeMachine() {
    set_available(1024 * kGiB);
    set_nodes("0");
    files_.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  }
  [[nodiscard]] const std::string& root() const { return files_.path(); }
  void write(const std::string& name, const std::string& text) const { files_.write(name, text); }
  void set_available(std::uint64_t bytes) const {
    write("proc/meminfo", str_cat("MemTotal:       99999999 kB\nMemAvailable:   ", bytes / 1024, " kB\n"));
  }
  void set_nodes(const std::string& list) const { write("sys/devices/system/node/has_memory", list + "\n"); }
  void set_node_free(int node, std::uint64_t bytes) const {
    write(str_cat("sys/devices/system/node/node", node, "/meminfo"),
          str_cat("Node ", node, " MemTotal:  99999999 kB\nNode ", node, " MemFree:  ", bytes / 1024, " kB\n"));
  }
  void set_pci_node(const std::string& pci_id, int node) const {
    write("sys/bus/pci/devices/" + pci_id + "/numa_node", str_cat(node, "\n"));
  }

 private:
  TestFolder files_;
};

// Runs `body` in a child process, so that limits and rights that it changes do not affect the tests; returns its result.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body();
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? str_cat("killed by signal ", WTERMSIG(status)) : text;
}

// For child processes: drops all capabilities, as if the user were not root.
inline void drop_rights() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) {
    _exit(2);
  }
}

inline void set_limit(__rlimit_resource resource, std::uint64_t bytes) {
  const rlimit limit = {bytes, bytes};
  if (setrlimit(resource, &limit) != 0) {
    _exit(3);
  }
}

inline bool is_mapped(const void* address) {
  unsigned char present = 0;
  return mincore(const_cast<void*>(address), 1, &present) == 0;
}

}  // namespace cairn
