// Fences of a disk tier's file: earlier entries are void, whichever superblocks are intact.
#include <gmock/gmock.h>

#include <sys/resource.h>

#include <csignal>

#include "cairn/tier/disk_testing.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DiskFenceTest : public DiskFileOfBlocks {
 protected:
  static constexpr std::uint32_t kBlocks = 100;

  static DiskEntry entry(std::uint32_t block_id, std::uint64_t number) {
    return {.block_id = BlockId{block_id}, .key = key(number), .checksum = Checksum{number * 3}};
  }
  static std::vector<BlockKey> keys(const DiskRecovery& recovery) {
    std::vector<BlockKey> keys;
    for (const DiskEntry& entry : recovery.entries) {
      keys.push_back(entry.key);
    }
    return keys;
  }
  // The file as a killed process leaves it: no superblock says that it was closed.
  void leave_as_killed(DiskFile& file) const {
    const std::string bytes = bytes_of_file();
    {
      const DiskFile closed = std::move(file);
    }
    std::ofstream(path_, std::ios::binary | std::ios::in)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string superblock(std::uint32_t copy) const {
    return bytes_of_file().substr(copy * disk::kSuperblockBytes, disk::kSuperblockBytes);
  }
  void write_superblock(std::uint32_t copy, const std::string& bytes) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(copy * disk::kSuperblockBytes));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  const DiskGeometry geometry_ = geometry(kBlocks);
};

TEST_F(DiskFenceTest, NothingOfBeforeIsRecovered) {
  {
    DiskFile file = *DiskFile::create(path_, geometry_);
    ASSERT_TRUE(file.put(std::vector{entry(7, 1), entry(3, 2), entry(99, 3)}));
    ASSERT_TRUE(file.fence(std::nullopt));
    EXPECT_THAT(file.recover()->entries, IsEmpty());
    ASSERT_TRUE(file.put(std::vector{entry(3, 4), entry(8, 1)}));
    leave_as_killed(file);
  }
  DiskFile file = *DiskFile::open(path_, geometry_);
  const DiskRecovery recovery = *file.recover();
  EXPECT_THAT(keys(recovery), ElementsAre(key(4), key(1)));
  EXPECT_EQ(recovery.damaged, 0U);
  EXPECT_EQ(recovery.superseded, 0U) << "void entries do not count as superseded";
  ASSERT_TRUE(file.fence(std::nullopt));
  ASSERT_TRUE(file.put(std::vector{entry(0, 9)}));
  EXPECT_THAT(keys(*file.recover()), ElementsAre(key(9)));
}

TEST_F(DiskFenceTest, OfAFileThatHeldNothingIsAFenceToo) {
  {
    DiskFile file = *DiskFile::create(path_, geometry_);
    ASSERT_TRUE(file.fence(std::nullopt));
    ASSERT_TRUE(file.fence(std::nullopt));
    ASSERT_TRUE(file.put(std::vector{entry(1, 1)}));
  }
  EXPECT_THAT(keys(*DiskFile::open(path_, geometry_)->recover()), ElementsAre(key(1)));
}

TEST_F(DiskFenceTest, NewWeightsMakeItAnotherNamespacesFile) {
  {
    DiskFile file = *DiskFile::create(path_, geometry_);
    ASSERT_TRUE(file.put(std::vector{entry(7, 1), entry(3, 2)}));
    ASSERT_TRUE(file.fence(4));
    EXPECT_EQ(file.geometry().space.weights_generation, 4U);
    ASSERT_TRUE(file.put(std::vector{entry(5, 6)}));
    leave_as_killed(file);
  }
  EXPECT_THAT(DiskFile::open(path_, geometry_).error().message, HasSubstr("weights generation '4', not '3'"));
  DiskGeometry later = geometry_;
  later.space.weights_generation = 4;
  DiskFile file = *DiskFile::open(path_, later);
  const DiskRecovery recovery = *file.recover();
  EXPECT_THAT(keys(recovery), ElementsAre(key(6)));
  EXPECT_EQ(recovery.damaged, 0U) << "entries of the old namespace are void, not damaged";
}

// The second copy is on the disk before the first is written: after a power failure at any time one of them is whole,
// and the later fence counts.
TEST_F(DiskFenceTest, TheLaterSuperblockCountsWhicheverOneItIs) {
  std::string before;
  {
    DiskFile file = *DiskFile::create(path_, geometry_);
    ASSERT_TRUE(file.put(std::vector{entry(7, 1)}));
    before = superblock(0);
    ASSERT_TRUE(file.fence(std::nullopt));
    leave_as_killed(file);
  }
  EXPECT_EQ(superblock(0), superblock(1));
  const std::string after = superblock(0);
  EXPECT_NE(after, before);
  const std::string torn = after.substr(0, 1000) + before.substr(1000, 2000) + std::string(1096, 'x');
  struct Case {
    std::string copies[2];
    bool is_fenced;
  };
  // By the order of writes: nothing written; the second one torn; the second one written; the first one torn; both.
  const Case cases[] = {{{before, before}, false},
                        {{before, torn}, false},
                        {{before, after}, true},
                        {{torn, after}, true},
                        {{after, after}, true}};
  for (const Case& each : cases) {
    write_superblock(0, each.copies[0]);
    write_superblock(1, each.copies[1]);
    DiskFile file = *DiskFile::inspect(path_);
    EXPECT_EQ(file.recover()->entries.size(), each.is_fenced ? 0U : 1U);
  }
}

TEST_F(DiskFenceTest, FailsWhereTheFileCannotBeWritten) {
  DiskFile file = *DiskFile::create(path_, geometry_);
  ASSERT_TRUE(file.put(std::vector{entry(7, 1)}));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const Status fenced = file.fence(std::nullopt);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(fenced.error().message, HasSubstr("cannot write to"));
  EXPECT_THAT(file.recover()->entries, IsEmpty()) << "the fence holds in this process";
}

}  // namespace
}  // namespace cairn
