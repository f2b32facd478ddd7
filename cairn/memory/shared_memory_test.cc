#include "cairn/memory/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cairn/memory/memory_testing.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/memory/system_region.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(SharedMemoryTest, RegionsOfOneMemoryHaveTheSameBytes) {
  const SharedMemoryPtr memory = *SharedMemory::make(4 * kMiB);
  EXPECT_EQ(memory->size(), 4 * kMiB);
  EXPECT_EQ(memory->touched(), 0U);
  const Result<RegionPtr> one = system_region({.size = 4 * kMiB, .shared = memory});
  ASSERT_TRUE(one.has_value()) << one.error().message;
  (*one)->base()[5] = std::byte{7};
  const SharedMemoryPtr received = *SharedMemory::adopt(::dup(memory->descriptor()));
  EXPECT_TRUE(received->is_same(*memory));
  const Result<RegionPtr> other = pinned_region({.size = 4 * kMiB, .shared = received});
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_NE((*one)->base(), (*other)->base());
  EXPECT_EQ((*other)->base()[5], std::byte{7}) << "what is there is kept when another process touches the pages";
  (*other)->base()[4 * kMiB - 1] = std::byte{9};
  EXPECT_EQ((*one)->base()[4 * kMiB - 1], std::byte{9});
  EXPECT_EQ(memory->touched(), 4 * kMiB) << "once, however many map it";
  EXPECT_FALSE((*SharedMemory::make(4 * kMiB))->is_same(*memory));
}

TEST(SharedMemoryTest, NobodyChangesItsSize) {
  const SharedMemoryPtr memory = *SharedMemory::make(kMiB);
  EXPECT_NE(::ftruncate(memory->descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(memory->descriptor(), 2 * kMiB), 0);
}

TEST(SharedMemoryTest, RefusesWhatIsNoSealedMemory) {
  EXPECT_FALSE(SharedMemory::make(0));
  EXPECT_FALSE(SharedMemory::make(~std::uint64_t{0}));
  EXPECT_FALSE(SharedMemory::adopt(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  const int open_ended = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(open_ended, 4096), 0);
  EXPECT_THAT(SharedMemory::adopt(open_ended).error().message, HasSubstr("no sealed shared memory"));
}

TEST(SharedMemoryTest, ARegionIsNotLargerThanTheMemory) {
  const SharedMemoryPtr memory = *SharedMemory::make(kMiB);
  EXPECT_THAT(system_region({.size = 2 * kMiB, .shared = memory}).error().message, HasSubstr("has 1048576 bytes"));
}

// What others have touched already is not asked of the machine again.
TEST(SharedMemoryTest, OnlyPagesThatAreMissingNeedRoom) {
  const FakeMachine machine;
  machine.set_available(64 * 1024 * kMiB);
  const SharedMemoryPtr memory = *SharedMemory::make(8 * kMiB);
  const Result<RegionPtr> first = system_region({.size = 8 * kMiB, .machine_root = machine.root(), .shared = memory});
  ASSERT_TRUE(first.has_value()) << first.error().message;
  machine.set_available(kMiB);
  const Result<RegionPtr> second = system_region({.size = 8 * kMiB, .machine_root = machine.root(), .shared = memory});
  EXPECT_TRUE(second.has_value()) << second.error().message;
  const SharedMemoryPtr another = *SharedMemory::make(8 * kMiB);
  EXPECT_FALSE(system_region({.size = 8 * kMiB, .machine_root = machine.root(), .shared = another}));
}

}  // namespace
}  // namespace cairn
