// A process is killed right after a reset with copies in flight; the next process finds no blocks.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include "cairn/base/str_cat.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_file.h"
#include "tests/crash/crash_testing.h"
#include "tests/crash/stress_process_testing.h"

namespace cairn::crash {
namespace {

struct Killed {
  std::uint64_t stored = 0;     // blocks on the disk before the reset
  std::uint64_t in_flight = 0;  // at the reset
};

Killed run_until_killed(const std::string& path, std::uint64_t generation, const std::string& what,
                        const std::string& log) {
  Process process({CAIRN_RESET_PROCESS, path, std::to_string(generation), what}, log);
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << process.log();
  Killed killed;
  std::istringstream(process.report()) >> killed.stored >> killed.in_flight;
  return killed;
}

std::size_t entries_in(const std::string& path) {
  Result<DiskFile> file = DiskFile::inspect(path);
  EXPECT_TRUE(file) << file.error().message;
  const DiskRecovery recovery = *file->recover();
  EXPECT_FALSE(recovery.clean) << "it was killed";
  EXPECT_EQ(recovery.damaged, 0U);
  return recovery.entries.size();
}

TEST(ResetKillTest, NoBlockFromBeforeTheResetIsFoundAfterAKill) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  const std::string log = folder.in("log");
  EXPECT_GE(run_until_killed(path, 0, "none", log).stored, 256U);
  EXPECT_GE(entries_in(path), 256U) << "without a reset they are found";
  std::uint64_t generation = 0;
  std::uint64_t in_flight = 0;
  const std::uint32_t cycles = std::max(8U, crash_settings.kills / 8);
  for (std::uint32_t cycle = 0; cycle < cycles; ++cycle) {
    const char* const ways[] = {"reset", "invalidate", "reset-late", "invalidate-late"};
    const std::string what = ways[cycle % 4];
    const Killed killed = run_until_killed(path, generation, what, log);
    generation += what.starts_with("invalidate") ? 1 : 0;
    in_flight += killed.in_flight;
    EXPECT_GE(killed.stored, 256U);
    ASSERT_EQ(entries_in(path), 0U) << "cycle " << cycle << ", " << what;
    if (HasFailure()) {
      break;
    }
  }
  std::printf("%u kills, %llu blocks in flight at their resets\n", cycles, static_cast<unsigned long long>(in_flight));
  EXPECT_GT(in_flight, 0U) << "no copies were in flight at the resets; the test shows nothing";
}

}  // namespace
}  // namespace cairn::crash
