// Whenever a process with a disk tier is killed, every block that its file lists afterwards is intact.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_check.h"
#include "cairn/tier/disk_file.h"
#include "tests/crash/crash_testing.h"
#include "tests/crash/stress_process_testing.h"

namespace cairn::crash {
namespace {

using std::chrono::microseconds;

// Measures how long a process with this run takes to start and end, because machines differ.
microseconds time_of(const StressRun& run, const std::string& log) {
  const TimePoint began = steady_clock().now();
  Process process(command_of(run), log);
  EXPECT_EQ(process.wait(), 0) << process.log();
  return std::chrono::duration_cast<microseconds>(steady_clock().now() - began);
}

TEST(KillTest, EveryBlockThatIsListedAfterAKillIsIntact) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  std::mt19937_64 random(crash_settings.seed);
  constexpr microseconds kTraffic(120'000);
  const microseconds creating = time_of({.path = folder.in("another")}, folder.in("log"));
  microseconds opening = time_of({.path = folder.in("another")}, folder.in("log"));
  std::uint32_t killed = 0;
  std::uint32_t with_blocks = 0;
  std::uint32_t not_closed = 0;
  std::uint64_t most = 0;
  std::uint64_t total = 0;
  for (std::uint32_t cycle = 0; cycle < crash_settings.kills; ++cycle) {
    if (cycle % 25 == 24) {
      std::filesystem::remove(path);  // so that the process is killed while it creates the file
    }
    // At any moment after its start; one in four before there is traffic.
    const microseconds starting = std::filesystem::exists(path) ? opening : creating;
    const microseconds longest = starting + (cycle % 4 == 0 ? microseconds(0) : kTraffic);
    const microseconds moment(random() % static_cast<std::uint64_t>(longest.count()));
    const StressRun run{.path = path,
                        .seconds = 60,
                        .seed = 1 + random() % 3,
                        .write_through = cycle % 2 == 0,
                        .direct = cycle / 2 % 2 == 0,
                        .steady = cycle % 3 != 0};
    const std::string which =
        str_cat("seed ", crash_settings.seed, ", cycle ", cycle, ", killed after ", moment.count(), " us");
    {
      Process process(command_of(run), folder.in("log"));
      ASSERT_TRUE(process.kill_after(moment))
          << which << ": the process ended first: " << process.log() << process.report();
    }
    ++killed;
    if (!std::filesystem::exists(path)) {
      continue;  // killed before it created the file
    }
    // Checked twice: by the checksums in the file, then by a manager that compares every byte with what was written.
    std::uint64_t listed = 0;
    {
      Result<DiskFile> file = DiskFile::inspect(path);
      ASSERT_TRUE(file) << which << ": " << file.error().message;
      const DiskRecovery recovery = *file->recover();
      EXPECT_EQ(recovery.damaged, 0U) << which;
      const DiskCheck check = *check_blocks(*file, recovery.entries);
      EXPECT_EQ(check.right.size(), recovery.entries.size()) << which;
      listed = recovery.entries.size();
      not_closed += recovery.clean ? 0 : 1;
    }
    StressRun same = run;
    same.seconds = 0;
    const TimePoint began = steady_clock().now();
    const Resumed resumed = resume(same, folder.in("log"));
    opening = std::chrono::duration_cast<microseconds>(steady_clock().now() - began);
    ASSERT_TRUE(resumed.exited_with(0)) << which << ": " << resumed.to_string();
    EXPECT_EQ(resumed.wrong, "") << which;
    EXPECT_EQ(resumed.refused, 0U) << which << ": " << resumed.to_string();
    EXPECT_EQ(resumed.verified, listed) << which << ": " << resumed.to_string();
    with_blocks += listed > 0 ? 1 : 0;
    most = std::max(most, listed);
    total += listed;
    if (HasFailure()) {
      break;
    }
  }
  std::printf("%u kills, %u in use, %u with blocks afterwards, at most %llu blocks\n", killed, not_closed, with_blocks,
              static_cast<unsigned long long>(most));
  // The test would pass on empty files, so most must have blocks.
  EXPECT_GT(with_blocks, crash_settings.kills / 5) << "seed " << crash_settings.seed;
  EXPECT_GT(not_closed, crash_settings.kills / 4) << "seed " << crash_settings.seed;
  EXPECT_GT(total, crash_settings.kills) << "seed " << crash_settings.seed;
}

}  // namespace
}  // namespace cairn::crash
