// `cairn stress` as a process with a disk tier in a file, for the tests that kill it and those that damage the file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::crash {

// A process that was started: its report is read from a pipe, its log goes into a file.
// Owner:    whoever started it; if it is still running at the end it is killed.
class Process {
 public:
  Process(const std::vector<std::string>& words, const std::string& log);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  // Lets it run for so long, or until it writes its report, and kills it. Whether the kill was what ended it.
  bool kill_after(std::chrono::microseconds time);
  // How it ended by itself, as waitpid() says; its report is whole then.
  int wait();

  [[nodiscard]] const std::string& report() const { return report_; }
  [[nodiscard]] std::string log() const;

 private:
  const std::string log_;
  int pipe_ = -1;
  pid_t child_ = -1;
  std::string report_;
};

// How the processes of one file differ: everything else about them is the same, or they could not share the file.
struct StressRun {
  std::string path = {};  // of the disk tier
  double seconds = 0;
  std::uint64_t seed = 1;
  bool resume = false;
  bool write_through = false;
  bool direct = true;
  bool steady = false;
};

// 32 blocks of device, 64 of host, 256 of disk.
inline constexpr std::uint32_t kDiskBlocks = 256;
[[nodiscard]] std::vector<std::string> command_of(const StressRun& run);

// What `cairn stress --resume` made of a file.
struct Resumed {
  int status = 0;  // as waitpid() says
  std::uint64_t verified = 0;
  std::uint64_t refused = 0;
  std::string wrong = {};
  std::string report = {};
  std::string log = {};

  [[nodiscard]] bool exited_with(int code) const;
  // For messages: how it ended and what it said.
  [[nodiscard]] std::string to_string() const;
};
[[nodiscard]] Resumed resume(StressRun run, const std::string& log);

}  // namespace cairn::crash
