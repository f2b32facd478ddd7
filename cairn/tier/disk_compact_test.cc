#include "cairn/tier/disk_compact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <new>
#include <utility>
#include <vector>

#include "cairn/tier/disk_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class DiskCompactTest : public DiskFileOfBlocks {
 protected:
  // Block id and number of each block, oldest first; all with the right bytes.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint64_t>> blocks() const {
    DiskFile file = *DiskFile::inspect(path_);
    const DiskRecovery recovery = *file.recover();
    EXPECT_EQ(recovery.damaged + recovery.superseded, 0U);
    EXPECT_TRUE(recovery.clean);
    EXPECT_TRUE(check_blocks(file, recovery.entries)->wrong.empty());
    std::vector<std::pair<std::uint32_t, std::uint64_t>> all;
    for (const DiskEntry& entry : recovery.entries) {
      EXPECT_EQ(entry.tokens_hash, BlockHash{9});
      all.emplace_back(index_of(entry.block_id), value_of(entry.key.sequence_hash()) - 1000);
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> folder() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
};

TEST_F(DiskCompactTest, KeepsWhatIsRightOldestFirst) {
  const DiskGeometry small = geometry(20);
  write(small, {{7, 1}, {3, 2}, {4, 3}, {5, 4}, {19, 5}, {0, 6}, {1, 2}});  // 2 is stored twice
  damage_block(small, 4);
  damage_entry(5);
  std::filesystem::permissions(path_, std::filesystem::perms(0640));
  const Compaction done = *compact(path_, {});
  EXPECT_EQ(done.kept, 4U);
  EXPECT_EQ(done.wrong, 1U);
  EXPECT_EQ(done.left_out, 0U);
  EXPECT_EQ(done.blocks, 20U);
  EXPECT_EQ(done.new_bytes, done.old_bytes);
  EXPECT_THAT(blocks(), ElementsAre(Pair(0, 1), Pair(1, 5), Pair(2, 6), Pair(3, 2)));
  EXPECT_THAT(folder(), ElementsAre("blocks"));
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0640));
  EXPECT_TRUE(DiskFile::open(path_, small)) << "it is a file of the same model";
}

TEST_F(DiskCompactTest, KeepsTheSecretOfTheKeys) {
  DiskGeometry keyed = geometry(20);
  keyed.keeps_secret = true;
  write(keyed, {{7, 1}});
  const std::optional<KeySecret> secret = DiskFile::inspect(path_)->geometry().secret;
  ASSERT_TRUE(secret.has_value());
  ASSERT_TRUE(compact(path_, {}));
  EXPECT_EQ(DiskFile::open(path_, keyed)->geometry().secret, secret);
}

TEST_F(DiskCompactTest, KeepsTheNewestWhereThereIsLessRoom) {
  const DiskGeometry small = geometry(20);
  write(small, {{7, 1}, {3, 2}, {4, 3}, {5, 4}, {19, 5}, {0, 6}});
  damage_block(small, 19);
  const Compaction done = *compact(path_, 3);
  EXPECT_EQ(done.kept, 3U);
  EXPECT_EQ(done.wrong, 1U);
  EXPECT_EQ(done.left_out, 2U);
  EXPECT_LT(done.new_bytes, done.old_bytes);
  EXPECT_EQ(std::filesystem::file_size(path_), done.new_bytes);
  EXPECT_THAT(blocks(), ElementsAre(Pair(0, 3), Pair(1, 4), Pair(2, 6)));
}

TEST_F(DiskCompactTest, GrowsWhereThereIsToBeMore) {
  write(geometry(2), {{1, 1}, {0, 2}});
  EXPECT_EQ(compact(path_, 5)->kept, 2U);
  EXPECT_THAT(blocks(), ElementsAre(Pair(0, 1), Pair(1, 2)));
  EXPECT_TRUE(DiskFile::open(path_, geometry(5)));
}

TEST_F(DiskCompactTest, ALinkLeadsToTheNewFile) {
  write(geometry(4), {{1, 1}});
  std::filesystem::create_directory(folder_.in("elsewhere"));
  const std::string link = folder_.in("elsewhere/link");
  std::filesystem::create_symlink(path_, link);
  ASSERT_TRUE(compact(link, {}));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(blocks(), ElementsAre(Pair(0, 1)));
}

TEST_F(DiskCompactTest, WithoutRoomTheOldFileStays) {
  write(geometry(4), {{1, 1}, {0, 2}});
  const std::string before = bytes_of_file();
  const Result<Compaction> done = compact(path_, 0xFFFF'FFF0);  // 32 TiB
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(done.error().message, AllOf(HasSubstr("it takes 35459251961856 bytes"), HasSubstr("are free")));
  EXPECT_EQ(bytes_of_file(), before);
  EXPECT_THAT(folder(), ElementsAre("blocks"));
  EXPECT_FALSE(compact(path_, 0));
}

TEST_F(DiskCompactTest, StopsOnRequestAndLeavesNothingBehind) {
  write(geometry(4), {{1, 1}, {0, 2}, {2, 3}});
  const std::string before = bytes_of_file();
  for (const std::optional<std::uint32_t> blocks : {std::optional<std::uint32_t>(), std::optional<std::uint32_t>(2)}) {
    const Result<Compaction> done =
        compact(path_, blocks, [](std::uint64_t count, std::uint64_t) { return count < 2; });
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(bytes_of_file(), before);
    EXPECT_THAT(folder(), ElementsAre("blocks"));
  }
}

TEST_F(DiskCompactTest, LeavesNothingBehindWhateverStopsIt) {
  write(geometry(4), {{1, 1}, {0, 2}, {2, 3}});
  EXPECT_THROW(
      static_cast<void>(compact(
          path_, {}, [](std::uint64_t count, std::uint64_t) { return count == 2 ? throw std::bad_alloc() : true; })),
      std::bad_alloc);
  EXPECT_THAT(folder(), ElementsAre("blocks"));
  // More blocks than a file of that size can have.
  DiskGeometry large = geometry(1, std::uint64_t{1} << 20);
  std::filesystem::remove(path_);
  write(large, {{0, 1}});
  EXPECT_THAT(compact(path_, 0xFFFF'FFFE).error().message, HasSubstr("are free"));
  EXPECT_THAT(folder(), ElementsAre("blocks"));
}

TEST_F(DiskCompactTest, DoesNotWriteThroughAPlantedLink) {
  write(geometry(4), {{1, 1}, {0, 2}});
  const std::string victim = folder_.in("victim");
  std::ofstream(victim) << "what somebody else needs";
  for (const char* const name : {".compact", ".compact.new"}) {
    std::filesystem::create_symlink(victim, path_ + name);
    EXPECT_FALSE(compact(path_, {})) << name;
    EXPECT_EQ(std::filesystem::file_size(victim), 24U);
    std::filesystem::remove(path_ + name);
  }
  EXPECT_THAT(blocks(), ElementsAre(Pair(1, 1), Pair(0, 2)));
}

TEST_F(DiskCompactTest, KilledAnywhereItLeavesAWholeFileAndTheNextOneFinishes) {
  for (std::uint64_t stop = 1; stop <= 3; ++stop) {
    std::filesystem::remove(path_);
    write(geometry(4), {{1, 1}, {0, 2}, {2, 3}});
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(compact(path_, {}, [stop](std::uint64_t count, std::uint64_t) {
        return count == stop ? raise(SIGKILL) == 0 : true;
      }));
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_TRUE(std::filesystem::exists(path_ + ".compact"));
    EXPECT_THAT(blocks(), ElementsAre(Pair(1, 1), Pair(0, 2), Pair(2, 3)));
    ASSERT_TRUE(compact(path_, {}));
    EXPECT_THAT(blocks(), ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 3)));
    EXPECT_THAT(folder(), ElementsAre("blocks"));
  }
}

TEST_F(DiskCompactTest, RefusesFilesInUseAndFilesOfOthers) {
  write(geometry(4), {{1, 1}});
  {
    const DiskFile user = *DiskFile::open(path_, geometry(4));
    EXPECT_THAT(compact(path_, {}).error().message, HasSubstr("in use by another process"));
  }
  // A file of another format is not overwritten.
  std::ofstream(path_ + ".compact") << "a letter";
  EXPECT_THAT(compact(path_, {}).error().message, HasSubstr("the new file would be " + path_ + ".compact"));
  EXPECT_EQ(std::filesystem::file_size(path_ + ".compact"), 8U);
  EXPECT_EQ(compact(folder_.in("nothing"), {}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace cairn
