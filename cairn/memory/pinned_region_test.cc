#include "cairn/memory/pinned_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A fake GPU that records its calls.
struct FakeGpu {
  struct Range {
    std::byte* base;
    std::uint64_t bytes;
  };
  std::vector<Range> added;
  std::vector<std::byte*> removed;
  bool refuses = false;
  bool pages_were_there = true;

  PageRegistrar registrar() {
    return {.add = [this](std::byte* base, std::uint64_t bytes) -> Status {
              if (refuses) {
                return fail(ErrorCode::kIo, "registering: not supported (801)");
              }
              std::vector<unsigned char> present(bytes / 4096);
              pages_were_there =
                  mincore(base, bytes, present.data()) == 0 &&
                  std::all_of(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; });
              added.push_back({base, bytes});
              return {};
            },
            .remove =
                [this](std::byte* base) {
                  pages_were_there = pages_were_there && is_mapped(base);
                  removed.push_back(base);
                },
            .pci_id = "0000:1B:00.0"};
  }
};

Result<PageRegistrar> no_driver() { return fail(ErrorCode::kUnavailable, "no NVIDIA driver: install it"); }

TEST(PinnedRegionTest, TouchedThenRegisteredInOnePieceAndUnregisteredOnce) {
  FakeGpu gpu;
  RegionPtr region = pinned_region({.size = 40 * kMiB + 1, .device = 2}, gpu.registrar()).value();
  EXPECT_EQ(region->kind(), MemoryKind::kPinned);
  EXPECT_EQ(region->device(), 2);
  EXPECT_EQ(region->size(), 40 * kMiB + 1);
  EXPECT_EQ(region->alignment(), 2 * kMiB);
  EXPECT_THAT(region->notes(), IsEmpty());
  ASSERT_EQ(gpu.added.size(), 1U);  // a copy may not cross from one registration to the next
  EXPECT_EQ(gpu.added[0].base, region->base());
  EXPECT_EQ(gpu.added[0].bytes, 40 * kMiB + 4096);
  EXPECT_TRUE(gpu.pages_were_there);
  const std::byte* const base = region->base();
  region.reset();
  ASSERT_EQ(gpu.removed.size(), 1U);
  EXPECT_EQ(gpu.removed[0], base);
  EXPECT_TRUE(gpu.pages_were_there);
  EXPECT_FALSE(is_mapped(base));
}

TEST(PinnedRegionTest, WithoutADriverPagesAreLockedAndSaySo) {
  const RegionPtr region = pinned_region({.size = 64 * 1024}, no_driver()).value();
  EXPECT_EQ(region->kind(), MemoryKind::kSystem);
  EXPECT_EQ(region->device(), kNoDevice);
  EXPECT_TRUE(region->is_host());
  EXPECT_THAT(region->notes(), AllOf(HasSubstr("not pinned: no NVIDIA driver"), HasSubstr("locked in memory instead")));
  region->base()[64 * 1024 - 1] = std::byte{1};
}

TEST(PinnedRegionTest, WhereTheDriverRefusesPagesAreLockedAndNothingIsUnregistered) {
  FakeGpu gpu;
  gpu.refuses = true;
  RegionPtr region = pinned_region({.size = 64 * 1024}, gpu.registrar()).value();
  EXPECT_EQ(region->kind(), MemoryKind::kSystem);
  EXPECT_THAT(region->notes(), AllOf(HasSubstr("not supported (801)"), HasSubstr("locked in memory instead")));
  region.reset();
  EXPECT_THAT(gpu.removed, IsEmpty());
}

TEST(PinnedRegionTest, WithoutTheRightToLockPagesArePlain) {
  const std::string text = in_child([]() -> std::string {
    set_limit(RLIMIT_MEMLOCK, 0);
    drop_rights();
    const Result<RegionPtr> made = pinned_region({.size = 64 * 1024, .threads = 1}, no_driver());
    if (!made) {
      return made.error().message;
    }
    (*made)->base()[0] = std::byte{1};
    return str_cat(to_string((*made)->kind()), ": ", (*made)->notes());
  });
  EXPECT_THAT(text, AllOf(HasSubstr("system: not pinned: no NVIDIA driver"), HasSubstr("nor locked: "),
                          HasSubstr("RLIMIT_MEMLOCK is 0 bytes"), HasSubstr("CAP_IPC_LOCK")));
}

TEST(PinnedRegionTest, RequiredIsAnErrorInstead) {
  const Result<RegionPtr> none = pinned_region({.size = 4096, .required = true}, no_driver());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(none.error().message, HasSubstr("pinned memory is required: no NVIDIA driver"));
  FakeGpu gpu;
  gpu.refuses = true;
  const Result<RegionPtr> refused = pinned_region({.size = 4096, .required = true}, gpu.registrar());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("not supported (801)"));
  EXPECT_THAT(gpu.removed, IsEmpty());
}

TEST(PinnedRegionTest, WrongRequestsDoNotFallBack) {
  FakeGpu gpu;
  EXPECT_EQ(pinned_region({.size = 0}, gpu.registrar()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pinned_region({.size = 1, .device = -1}, gpu.registrar()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pinned_region({.size = 1, .device = 9}, fail(ErrorCode::kNotFound, "there is no GPU 9")).error().code,
            ErrorCode::kNotFound);
  EXPECT_THAT(gpu.added, IsEmpty());
}

TEST(PinnedRegionTest, OutOfMemoryIsAnErrorAndNothingIsRegistered) {
  const FakeMachine machine;
  machine.set_available(100 * kMiB);
  FakeGpu gpu;
  const Result<RegionPtr> made = pinned_region({.size = kGiB, .machine_root = machine.root()}, gpu.registrar());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(gpu.added, IsEmpty());
}

TEST(PinnedRegionTest, TheNodeOfTheGpuIsRequestedAndVerified) {
  const FakeMachine machine;
  machine.set_nodes("0-1");
  machine.set_pci_node("0000:1b:00.0", 0);
  FakeGpu gpu;
  const RegionPtr region = pinned_region({.size = kMiB, .machine_root = machine.root()}, gpu.registrar()).value();
  if (region->notes().find("refused") != std::string::npos) {
    GTEST_SKIP() << region->notes();
  }
  EXPECT_EQ(region->kind(), MemoryKind::kPinned);
  EXPECT_EQ(region->numa_node(), 0);
  EXPECT_THAT(region->notes(), IsEmpty());
}

TEST(PinnedRegionTest, ANodeThatTheKernelDoesNotGiveIsNotedUnlessItWasNamed) {
  // No machine has as many nodes, whatever the files say.
  const FakeMachine machine;
  machine.set_nodes("0,1000");
  machine.set_pci_node("0000:1b:00.0", 1000);
  FakeGpu gpu;
  const RegionPtr region = pinned_region({.size = kMiB, .machine_root = machine.root()}, gpu.registrar()).value();
  EXPECT_EQ(region->kind(), MemoryKind::kPinned);
  EXPECT_NE(region->numa_node(), 1000);
  EXPECT_THAT(region->notes(), HasSubstr("on memory node 1000: the kernel refused mbind"));
  const Result<RegionPtr> named =
      pinned_region({.size = kMiB, .numa_node = 1000, .machine_root = machine.root()}, gpu.registrar());
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, ErrorCode::kUnavailable);
}

TEST(PinnedRegionTest, ANodeTooSmallOrUnknownIsNoted) {
  const FakeMachine machine;
  machine.set_nodes("0-1");
  FakeGpu gpu;
  const RegionPtr unknown = pinned_region({.size = 4096, .machine_root = machine.root()}, gpu.registrar()).value();
  EXPECT_THAT(unknown->notes(), HasSubstr("does not say which one GPU 0 (0000:1B:00.0) is next to"));
  machine.set_pci_node("0000:1b:00.0", 0);
  machine.set_node_free(0, kMiB);
  const RegionPtr small = pinned_region({.size = 4096, .machine_root = machine.root()}, gpu.registrar()).value();
  EXPECT_THAT(small->notes(), HasSubstr("memory node 0 of GPU 0 is too small"));
}

TEST(PinnedRegionTest, ProgressGoesOnlyUpAndToTheEnd) {
  for (const bool refuses : {false, true}) {
    FakeGpu gpu;
    gpu.refuses = refuses;
    std::vector<std::uint64_t> seen;
    const Result<RegionPtr> made = pinned_region({.size = 50 * kMiB,
                                                  .progress =
                                                      [&](std::uint64_t done, std::uint64_t total) {
                                                        EXPECT_EQ(total, 100 * kMiB);  // touched, and registered
                                                        seen.push_back(done);
                                                      }},
                                                 gpu.registrar());
    ASSERT_TRUE(made);
    ASSERT_GE(seen.size(), 2U);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), 100 * kMiB);
  }
}

TEST(PinnedRegionTest, WithWhatThisMachineHas) {
  const Result<RegionPtr> made = pinned_region({.size = kMiB});
  ASSERT_TRUE(made) << made.error().message;
  const bool noted = (*made)->notes().find("not pinned") != std::string::npos;
  EXPECT_EQ((*made)->kind(), noted ? MemoryKind::kSystem : MemoryKind::kPinned);
}

}  // namespace
}  // namespace cairn
