#include "cairn/memory/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/memory/host_text.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostTextTest, FindsFieldsAtTheBeginningOfLines) {
  constexpr std::string_view kText = "XMemFree: 1 kB\nMemFree:    4 kB\nHugePages_Free:  7\nBroken: x\n";
  EXPECT_EQ(find_field(kText, "MemFree:"), 4096U);
  EXPECT_EQ(find_field(kText, "HugePages_Free:"), 7U);
  EXPECT_EQ(find_field(kText, "Broken:"), std::nullopt);
  EXPECT_EQ(find_field(kText, "Absent:"), std::nullopt);
  EXPECT_EQ(find_field("Node 12 MemFree: 2 kB", "MemFree:"), 2048U);
  EXPECT_EQ(find_field("", "MemFree:"), std::nullopt);
}

TEST(HostTextTest, NumbersAreWholeTexts) {
  EXPECT_EQ(parse_number(" 12\n"), 12);
  EXPECT_EQ(parse_number("-1\n"), -1);
  EXPECT_EQ(parse_number("max\n"), std::nullopt);
  EXPECT_EQ(parse_number("12x"), std::nullopt);
  EXPECT_EQ(parse_number(""), std::nullopt);
}

TEST(HostTextTest, BytesInWords) {
  EXPECT_EQ(bytes_text(7), "7 bytes");
  EXPECT_EQ(bytes_text(1536), "1536 bytes (1.5 KiB)");
  EXPECT_EQ(bytes_text(std::uint64_t{1} << 40), "1099511627776 bytes (1.0 TiB)");
}

TEST(HostLimitsTest, AvailableMemoryIsTheLimit) {
  const FakeMachine machine;
  machine.set_available(8 * kGiB);
  const HostLimits limits(machine.root());
  const MemoryRoom room = limits.memory();
  EXPECT_EQ(room.bytes, 8 * kGiB - 8 * kGiB / 64);
  EXPECT_TRUE(limits.check_memory(room.bytes));
  const Status over = limits.check_memory(room.bytes + 1);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(over.error().message,
              AllOf(HasSubstr("MemAvailable of the machine is 8589934592 bytes (8.0 GiB)"), HasSubstr("ask for less")));
}

TEST(HostLimitsTest, ALittleIsAlwaysLeftToOthers) {
  const FakeMachine machine;
  machine.set_available(65 * kMiB);
  EXPECT_EQ(HostLimits(machine.root()).memory().bytes, kMiB);
  machine.set_available(63 * kMiB);
  EXPECT_EQ(HostLimits(machine.root()).memory().bytes, 0U);
}

TEST(HostLimitsTest, NothingKnownIsNoLimit) {
  const TestFolder empty;
  EXPECT_EQ(HostLimits(empty.path()).memory().bytes, UINT64_MAX);
}

TEST(HostLimitsTest, TheTightestGroupOfVersion2Counts) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/pod/engine\n");
  machine.write("sys/fs/cgroup/pod/engine/memory.max", "max\n");
  machine.write("sys/fs/cgroup/pod/engine/memory.current", "0\n");
  machine.write("sys/fs/cgroup/pod/memory.max", str_cat(4 * kGiB, "\n"));
  machine.write("sys/fs/cgroup/pod/memory.current", str_cat(3 * kGiB, "\n"));
  machine.write("sys/fs/cgroup/pod/memory.stat", str_cat("anon 5\ninactive_file ", kGiB, "\nactive_file ", kGiB, "\n"));
  const MemoryRoom room = HostLimits(machine.root()).memory();
  EXPECT_EQ(room.bytes, 3 * kGiB - 64 * kMiB);  // the page cache is dropped first
  EXPECT_THAT(room.limit, AllOf(HasSubstr("control group /pod may use 4294967296 bytes"), HasSubstr("memory.max"),
                                HasSubstr("uses 1073741824 bytes")));
}

TEST(HostLimitsTest, TheContainersOwnGroupIsFoundWherePathsBeginOutside) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/kubepods/outside\n");
  machine.write("sys/fs/cgroup/memory.max", str_cat(kGiB, "\n"));
  machine.write("sys/fs/cgroup/memory.current", "0\n");
  const MemoryRoom room = HostLimits(machine.root()).memory();
  EXPECT_EQ(room.bytes, kGiB - 64 * kMiB);
  EXPECT_THAT(room.limit, HasSubstr("control group / may use"));
}

TEST(HostLimitsTest, GroupsOfVersion1Count) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a/b\nodd\n0::/\n");
  machine.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", str_cat(2 * kGiB, "\n"));
  machine.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", str_cat(kGiB, "\n"));
  machine.write("sys/fs/cgroup/memory/a/memory.stat", str_cat("inactive_file 9\ntotal_inactive_file ", kGiB / 2, "\n"));
  EXPECT_EQ(HostLimits(machine.root()).memory().bytes, 3 * kGiB / 2 - 64 * kMiB);
}

TEST(HostLimitsTest, ANodeHasWhatIsFreeOrInThePageCache) {
  const FakeMachine machine;
  machine.write("sys/devices/system/node/node1/meminfo",
                "Node 1 MemFree: 1048576 kB\nNode 1 Active(file): 524288 kB\nNode 1 Inactive(file): 524288 kB\n");
  const HostLimits limits(machine.root());
  EXPECT_EQ(limits.memory(1).bytes, 2 * kGiB - 64 * kMiB);
  EXPECT_THAT(limits.memory(1).limit, HasSubstr("memory node 1 has 2147483648 bytes"));
  EXPECT_GT(limits.memory().bytes, 2 * kGiB);
}

TEST(HostLimitsTest, ReservedHugePagesAreNotFree) {
  const FakeMachine machine;
  machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n");
  machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n");
  machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "5\n");
  machine.write("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "2\n");
  const HostLimits limits(machine.root());
  EXPECT_EQ(limits.huge_pages(2 * kMiB).total, 10U);
  EXPECT_EQ(limits.huge_pages(2 * kMiB).free, 3U);
  EXPECT_EQ(limits.huge_pages(2 * kMiB, 1).free, 2U);
  EXPECT_EQ(limits.huge_pages(kGiB).total, 0U);
}

TEST(HostLimitsTest, ThisMachineSaysSomething) {
  const MemoryRoom room = HostLimits("").memory();
  EXPECT_LT(room.bytes, UINT64_MAX);
  EXPECT_FALSE(room.limit.empty());
}

}  // namespace
}  // namespace cairn
