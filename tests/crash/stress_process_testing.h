// Runs `cairn stress` as a process with a disk tier, for the tests that kill it or damage its file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::crash {

// A child process. Its report (standard output) is read from a pipe, its log (standard error) goes to a file. The
// destructor kills the process if it is still running.
class Process {
 public:
  Process(const std::vector<std::string>& words, const std::string& log);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  // Kills the process after this time, or as soon as it writes its report. False if it ended by itself.
  bool kill_after(std::chrono::microseconds time);
  // Waits for its end; returns the status of waitpid(). The report is complete then.
  int wait();

  [[nodiscard]] const std::string& report() const { return report_; }
  [[nodiscard]] std::string log() const;

 private:
  const std::string log_;
  int pipe_ = -1;
  pid_t child_ = -1;
  std::string report_;
};

// The options in which the runs on one file may differ.
struct StressRun {
  std::string path = {};  // of the disk tier
  double seconds = 0;
  std::uint64_t seed = 1;
  bool resume = false;
  bool write_through = false;
  bool direct = true;
  bool steady = false;
};

// The device tier has 32 blocks, the host tier 64.
inline constexpr std::uint32_t kDiskBlocks = 256;
[[nodiscard]] std::vector<std::string> command_of(const StressRun& run);

// The outcome of `cairn stress --resume` on a file.
struct Resumed {
  int status = 0;  // of waitpid()
  std::uint64_t verified = 0;
  std::uint64_t refused = 0;
  std::string wrong = {};
  std::string report = {};
  std::string log = {};

  [[nodiscard]] bool exited_with(int code) const;
  // For messages: exit status, report and log.
  [[nodiscard]] std::string to_string() const;
};
[[nodiscard]] Resumed resume(StressRun run, const std::string& log);

}  // namespace cairn::crash
