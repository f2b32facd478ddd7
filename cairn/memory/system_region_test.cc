#include "cairn/memory/system_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "cairn/memory/host_limits.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text_of(const Result<RegionPtr>& result) {
  return result ? str_cat("made: ", (*result)->notes()) : result.error().to_string();
}

TEST(SystemRegionTest, PagesAreZeroedAlignedAndWritable) {
  const Result<RegionPtr> made = system_region({.size = 5000});
  ASSERT_TRUE(made) << made.error().message;
  const Region& region = **made;
  EXPECT_EQ(region.kind(), MemoryKind::kSystem);
  EXPECT_EQ(region.size(), 5000U);
  EXPECT_EQ(region.alignment(), 4096U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.base()) % region.alignment(), 0U);
  EXPECT_EQ(region.device(), kNoDevice);
  EXPECT_EQ(region.file(), kNoFile);
  EXPECT_FALSE(region.is_external());
  EXPECT_TRUE(region.is_host());
  EXPECT_TRUE(std::all_of(region.base(), region.base() + region.size(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill_n(region.base(), region.size(), std::byte{0x5a});
}

TEST(SystemRegionTest, LargeOnesBeginAtAHugePage) {
  for (const HugePages pages : {HugePages::kTransparent, HugePages::kNone}) {
    const std::uint64_t alignment = pages == HugePages::kNone ? 4096 : 2 * kMiB;
    for (int i = 0; i < 8; ++i) {
      const Result<RegionPtr> made = system_region({.size = 2 * kMiB + 4096U * i, .huge_pages = pages});
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ((*made)->alignment(), alignment);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*made)->base()) % alignment, 0U);
      (*made)->base()[(*made)->size() - 1] = std::byte{1};
    }
  }
}

TEST(SystemRegionTest, EveryPageIsPresentAtOnce) {
  const Result<RegionPtr> touched = system_region({.size = 40 * kMiB, .huge_pages = HugePages::kNone});
  const Result<RegionPtr> not_touched =
      system_region({.size = 40 * kMiB, .huge_pages = HugePages::kNone, .prefault = false});
  ASSERT_TRUE(touched && not_touched);
  std::vector<unsigned char> present(40 * kMiB / 4096);
  ASSERT_EQ(mincore((*touched)->base(), 40 * kMiB, present.data()), 0);
  EXPECT_TRUE(std::all_of(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; }));
  ASSERT_EQ(mincore((*not_touched)->base(), 40 * kMiB, present.data()), 0);
  EXPECT_TRUE(std::none_of(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(SystemRegionTest, ReleaseUnmaps) {
  Result<RegionPtr> made = system_region({.size = 4 * kMiB});
  ASSERT_TRUE(made);
  const std::byte* const base = (*made)->base();
  RegionPtr other = *made;
  made->reset();
  EXPECT_TRUE(is_mapped(base));
  other.reset();
  EXPECT_FALSE(is_mapped(base));
  EXPECT_FALSE(is_mapped(base + 4 * kMiB - 4096));
}

TEST(SystemRegionTest, ChildrenDoNotInherit) {
  const Result<RegionPtr> made = system_region({.size = 64 * 1024});
  ASSERT_TRUE(made);
  EXPECT_EQ(in_child([&] { return std::string(is_mapped((*made)->base()) ? "mapped" : "not mapped"); }), "not mapped");
}

TEST(SystemRegionTest, SizesThatCannotBe) {
  const Result<RegionPtr> none = system_region({.size = 0});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(none.error().message, HasSubstr("0 bytes"));
  EXPECT_EQ(system_region({.size = UINT64_MAX}).error().code, ErrorCode::kInvalidArgument);
}

TEST(SystemRegionTest, MoreThanTheMachineHasIsAnErrorBeforeAnythingIsTouched) {
  const FakeMachine machine;
  machine.set_available(512 * kMiB);
  const Result<RegionPtr> made = system_region({.size = kGiB, .machine_root = machine.root()});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("1073741824 bytes (1.0 GiB)"),
                                          HasSubstr("MemAvailable of the machine is 536870912 bytes")));
  const Result<RegionPtr> real = system_region({.size = HostLimits("").memory().bytes + 16 * kGiB});
  ASSERT_FALSE(real);
  EXPECT_EQ(real.error().code, ErrorCode::kExhausted);
}

TEST(SystemRegionTest, MemoryTakenMeanwhileIsAnErrorToo) {
  const FakeMachine machine;
  machine.set_available(kGiB);
  // Other processes take all memory as soon as the first chunk is touched; the room is checked again before the next
  // 128 MiB.
  const Result<RegionPtr> made = system_region({.size = 144 * kMiB,
                                                .threads = 1,
                                                .progress = [&](auto, auto) { machine.set_available(0); },
                                                .machine_root = machine.root()});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
}

TEST(SystemRegionTest, WhatIsNotTouchedIsNoted) {
  const FakeMachine machine;
  machine.set_available(100 * kMiB);
  const Result<RegionPtr> made = system_region({.size = kGiB, .prefault = false, .machine_root = machine.root()});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT((*made)->notes(), AllOf(HasSubstr("not touched yet"), HasSubstr("MemAvailable")));
}

TEST(SystemRegionTest, HugePagesThatAreNotSetAsideAreNotedAndDoneWithout) {
  const FakeMachine machine;
  machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
  machine.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1\n");
  const Result<RegionPtr> made =
      system_region({.size = 5 * kMiB, .huge_pages = HugePages::k2MiB, .machine_root = machine.root()});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT((*made)->notes(), AllOf(HasSubstr("no huge pages: 3 pages of 2 MiB were requested, 1 of 3 are free"),
                                      HasSubstr("nr_hugepages")));
  EXPECT_EQ((*made)->alignment(), 2 * kMiB);
  const Result<RegionPtr> giant =
      system_region({.size = 4096, .huge_pages = HugePages::k1GiB, .machine_root = machine.root()});
  ASSERT_TRUE(giant) << giant.error().message;
  EXPECT_THAT((*giant)->notes(), HasSubstr("1 pages of 1 GiB were requested, 0 of 0 are free"));
}

TEST(SystemRegionTest, HugePagesThatAreSetAsideAreUsed) {
  if (HostLimits("").huge_pages(2 * kMiB).free < 2) {
    GTEST_SKIP() << "no huge pages are set aside here: echo 2 > /proc/sys/vm/nr_hugepages";
  }
  const Result<RegionPtr> made = system_region({.size = 3 * kMiB, .huge_pages = HugePages::k2MiB});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT((*made)->notes(), IsEmpty());
  EXPECT_EQ((*made)->alignment(), 2 * kMiB);
  EXPECT_EQ((*made)->size(), 3 * kMiB);
  std::fill_n((*made)->base(), (*made)->size(), std::byte{1});
}

TEST(SystemRegionTest, TransparentPagesSwitchedOffAreNoted) {
  const FakeMachine machine;
  machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  const Result<RegionPtr> made = system_region({.size = 4 * kMiB, .machine_root = machine.root()});
  ASSERT_TRUE(made);
  EXPECT_THAT((*made)->notes(), HasSubstr("transparent ones are off"));
}

TEST(SystemRegionTest, LockingNeedsTheLimit) {
  const std::string refused = in_child([] {
    set_limit(RLIMIT_MEMLOCK, 0);
    drop_rights();
    return text_of(system_region({.size = 64 * 1024, .lock = true, .threads = 1}));
  });
  EXPECT_THAT(refused, AllOf(HasSubstr("exhausted: locking 65536 bytes (64.0 KiB)"),
                             HasSubstr("RLIMIT_MEMLOCK is 0 bytes"), HasSubstr("ulimit -l")));
  const std::string locked = in_child([]() -> std::string {
    set_limit(RLIMIT_MEMLOCK, 128 * 1024);
    drop_rights();
    const Result<RegionPtr> made = system_region({.size = 64 * 1024, .prefault = false, .lock = true, .threads = 1});
    const std::uint64_t bytes = find_field(read_text("/proc/self/status").value_or(""), "VmLck:").value_or(0);
    return made ? str_cat(bytes, " locked") : made.error().message;
  });
  EXPECT_EQ(locked, "65536 locked");
}

TEST(SystemRegionTest, TheLimitOnAddressSpaceIsNamed) {
  const std::string refused = in_child([] {
    const std::uint64_t used = find_field(read_text("/proc/self/status").value_or(""), "VmSize:").value_or(0);
    set_limit(RLIMIT_AS, used + 64 * kMiB);
    return text_of(system_region({.size = kGiB, .threads = 1}));
  });
  EXPECT_THAT(refused, AllOf(HasSubstr("exhausted: mapping 1073741824 bytes"), HasSubstr("RLIMIT_AS is ")));
}

TEST(SystemRegionTest, ANodeIsRequestedAndVerified) {
  const Result<RegionPtr> made = system_region({.size = 8 * kMiB, .numa_node = 0});
  if (!made && made.error().code == ErrorCode::kUnavailable) {
    GTEST_SKIP() << made.error().message;
  }
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->numa_node(), 0);
  EXPECT_THAT((*made)->notes(), IsEmpty());
  const Result<RegionPtr> later = system_region({.size = 8 * kMiB, .prefault = false, .numa_node = 0});
  ASSERT_TRUE(later);
  EXPECT_EQ((*later)->numa_node(), kNoNumaNode);
  EXPECT_THAT((*later)->notes(), HasSubstr("not verified"));
}

TEST(SystemRegionTest, ANodeThatIsNotThere) {
  const FakeMachine machine;
  machine.set_nodes("0-1");
  const Result<RegionPtr> made = system_region({.size = 4096, .numa_node = 5, .machine_root = machine.root()});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(made.error().message, HasSubstr("no memory node 5; those with memory are: 0 1"));
}

TEST(SystemRegionTest, ANodeThatIsFull) {
  const FakeMachine machine;
  machine.set_nodes("0-1");
  machine.set_node_free(1, 80 * kMiB);
  const Result<RegionPtr> made = system_region({.size = 32 * kMiB, .numa_node = 1, .machine_root = machine.root()});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(made.error().message, HasSubstr("memory node 1 has 83886080 bytes"));
}

TEST(SystemRegionTest, WhereThePagesAreIsSaidOnMachinesWithSeveralNodes) {
  const FakeMachine machine;
  const Result<RegionPtr> alone = system_region({.size = 64 * 1024, .machine_root = machine.root()});
  ASSERT_TRUE(alone);
  EXPECT_EQ((*alone)->numa_node(), kNoNumaNode);
  machine.set_nodes("0-1");
  const Result<RegionPtr> several = system_region({.size = 4096, .machine_root = machine.root()});
  ASSERT_TRUE(several);
  EXPECT_GE((*several)->numa_node(), 0);
}

TEST(SystemRegionTest, ProgressGoesOnlyUpAndToTheEnd) {
  std::vector<std::uint64_t> seen;
  const std::thread::id caller = std::this_thread::get_id();
  const std::uint64_t size = 100 * kMiB;
  const Result<RegionPtr> made = system_region({.size = size, .progress = [&](std::uint64_t done, std::uint64_t total) {
                                                  EXPECT_EQ(total, size);
                                                  EXPECT_EQ(std::this_thread::get_id(), caller);
                                                  seen.push_back(done);
                                                }});
  ASSERT_TRUE(made);
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), size);
}

}  // namespace
}  // namespace cairn
