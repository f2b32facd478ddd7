#include "cairn/tier/disk_file.h"

#include "cairn/tier/disk_check.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/tier/disk_format.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DiskFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "disk_file_test." + std::to_string(getpid()) + ".cairn";
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static DiskGeometry geometry(std::uint32_t blocks = 100) {
    return {
        .space = {.tenant = "t", .model = "m", .layout = "contiguous-nhd", .element_type = "bf16", .block_size = 16},
        .block_bytes = 5000,
        .row_bytes = 100,
        .blocks = blocks};
  }
  static BlockKey key(std::uint64_t number) {
    return BlockKey::make_checked(static_cast<std::uint32_t>(number % 1000), SequenceHash{number * 77},
                                  SequenceHash{1});
  }
  static DiskEntry entry(std::uint32_t block_id, std::uint64_t number) {
    return {.block_id = BlockId{block_id},
            .key = key(number),
            .checksum = Checksum{number * 3},
            .tokens_hash = BlockHash{number * 5}};
  }
  void overwrite(std::uint64_t offset, const std::vector<char>& bytes) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path_;
};

TEST_F(DiskFileTest, HasRoomForAllBlocksWhereDirectReadsWantThem) {
  const DiskFile file = *DiskFile::create(path_, geometry());
  EXPECT_EQ(file.data_offset() % (2 << 20), 0U);
  EXPECT_EQ(file.block_step(), 8192U);
  EXPECT_EQ(std::filesystem::file_size(path_), file.file_bytes());
}

TEST_F(DiskFileTest, MayHaveEntriesOnly) {
  DiskGeometry entries_only = geometry();
  entries_only.block_bytes = 0;
  entries_only.row_bytes = 0;
  {
    DiskFile file = *DiskFile::create(path_, entries_only);
    EXPECT_EQ(file.file_bytes(), file.data_offset());
    ASSERT_TRUE(file.put(std::vector{entry(99, 3)}));
  }
  EXPECT_EQ(DiskFile::open(path_, geometry()).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ((*DiskFile::open(path_, entries_only)).recover()->entries.size(), 1U);
  // It has nothing to verify.
  DiskFile file = *DiskFile::inspect(path_);
  EXPECT_THAT(check_blocks(file, file.recover()->entries, {}).error().message, HasSubstr("has entries only"));
}

TEST_F(DiskFileTest, KeepsTheSecretThatKeysAreMadeWith) {
  DiskGeometry keyed = geometry();
  keyed.keeps_secret = true;
  const KeySecret secret = *DiskFile::create(path_, keyed)->geometry().secret;
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(DiskFile::open(path_, keyed)->geometry().secret, secret);
  EXPECT_EQ(DiskFile::inspect(path_)->geometry().secret, secret);
  keyed.secret = secret;
  EXPECT_TRUE(DiskFile::open(path_, keyed));
  keyed.secret = KeySecret::random();
  const Result<DiskFile> other = DiskFile::open(path_, keyed);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other.error().message, HasSubstr("another key secret"));
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("keeps a key secret"));

  std::filesystem::remove(path_);
  EXPECT_EQ(DiskFile::create(path_, keyed)->geometry().secret, keyed.secret) << "the given secret";
  std::filesystem::remove(path_);
  EXPECT_EQ(DiskFile::create(path_, geometry())->geometry().secret, std::nullopt);
  EXPECT_THAT(DiskFile::open(path_, keyed).error().message, HasSubstr("keeps no key secret"));
}

TEST_F(DiskFileTest, ASecretThatOthersMayReadIsRefused) {
  DiskGeometry keyed = geometry();
  keyed.keeps_secret = true;
  ASSERT_TRUE(DiskFile::create(path_, keyed));
  for (const auto mode : {0640, 0604, 0620, 0602}) {
    std::filesystem::permissions(path_, std::filesystem::perms(mode));
    const Result<DiskFile> opened = DiskFile::open(path_, keyed);
    ASSERT_FALSE(opened) << mode;
    EXPECT_THAT(opened.error().message, HasSubstr("chmod 600"));
  }
  std::filesystem::permissions(path_, std::filesystem::perms(0400) | std::filesystem::perms(0200));
  EXPECT_TRUE(DiskFile::open(path_, keyed));
}

TEST_F(DiskFileTest, RecoversWhatWasPutOldestFirst) {
  {
    DiskFile file = *DiskFile::create(path_, geometry());
    ASSERT_TRUE(file.recover()->entries.empty());
    ASSERT_TRUE(file.put(std::vector{entry(7, 1), entry(3, 2), entry(99, 3)}));
    ASSERT_TRUE(file.erase(std::vector{BlockId{3}}));
    ASSERT_TRUE(file.put(std::vector{entry(7, 4)}));
    ASSERT_TRUE(file.sync());
  }
  DiskFile file = *DiskFile::open(path_, geometry());
  const DiskRecovery recovery = *file.recover();
  EXPECT_TRUE(recovery.clean);
  EXPECT_EQ(recovery.damaged, 0U);
  ASSERT_EQ(recovery.entries.size(), 2U);
  EXPECT_EQ(recovery.entries[0].block_id, BlockId{99});
  EXPECT_EQ(recovery.entries[0].key, key(3));
  EXPECT_EQ(recovery.entries[0].checksum, Checksum{9});
  EXPECT_EQ(recovery.entries[1].block_id, BlockId{7});
  EXPECT_EQ(recovery.entries[1].key, key(4));
  EXPECT_LT(recovery.entries[0].order, recovery.entries[1].order);
  // Entries written now are later than all others.
  ASSERT_TRUE(file.put(std::vector{entry(0, 9)}));
  EXPECT_EQ(file.recover()->entries.back().key, key(9));
}

// Neighbours are written together, in whatever order they are given: each must be written to its own block.
TEST_F(DiskFileTest, PutsAndErasesRunsOfBlocksInAnyOrder) {
  constexpr std::uint32_t kBlocks = 40'000;  // more than are written at once
  {
    DiskFile file = *DiskFile::create(path_, geometry(kBlocks));
    std::vector<DiskEntry> entries;
    for (std::uint32_t block_id = kBlocks; block_id-- > 0;) {
      if (block_id % 1000 != 500) {  // gaps
        entries.push_back(entry(block_id, block_id + 1));
      }
    }
    ASSERT_TRUE(file.put(entries));
    std::vector<BlockId> erased;
    for (const std::uint32_t block_id : {39'999U, 10U, 12U, 11U, 20U, 39'998U}) {
      erased.push_back(BlockId{block_id});
    }
    ASSERT_TRUE(file.erase(erased));
  }
  DiskFile file = *DiskFile::open(path_, geometry(kBlocks));
  const DiskRecovery recovery = *file.recover();
  EXPECT_EQ(recovery.damaged, 0U);
  ASSERT_EQ(recovery.entries.size(), kBlocks - 40 - 6);
  std::uint32_t last = kBlocks;
  for (const DiskEntry& found : recovery.entries) {
    const std::uint32_t block_id = index_of(found.block_id);
    EXPECT_LT(block_id, last);  // oldest first: in the order given
    EXPECT_EQ(found.key, key(block_id + 1));
    EXPECT_TRUE(block_id % 1000 != 500 && block_id != 20 && (block_id < 10 || block_id > 12) && block_id < 39'998)
        << block_id;
    last = block_id;
  }
}

TEST_F(DiskFileTest, KeepsTheLaterOfTwoEntriesOfAKey) {
  DiskFile file = *DiskFile::create(path_, geometry());
  ASSERT_TRUE(file.put(std::vector{entry(1, 5), entry(2, 6), entry(3, 5)}));
  const DiskRecovery recovery = *file.recover();
  EXPECT_EQ(recovery.superseded, 1U);
  EXPECT_EQ(recovery.passed_over, std::vector{BlockId{1}});
  ASSERT_EQ(recovery.entries.size(), 2U);
  EXPECT_EQ(recovery.entries[1].block_id, BlockId{3});
}

TEST_F(DiskFileTest, SurvivesTheProcessThatWroteIt) {
  const pid_t child = fork();
  if (child == 0) {
    DiskFile file = *DiskFile::create(path_, geometry());
    static_cast<void>(file.put(std::vector{entry(5, 8)}));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  DiskFile file = *DiskFile::open(path_, geometry());
  const DiskRecovery recovery = *file.recover();
  EXPECT_FALSE(recovery.clean);
  ASSERT_EQ(recovery.entries.size(), 1U);
  EXPECT_EQ(recovery.entries[0].key, key(8));
}

TEST_F(DiskFileTest, IsOpenInOneProcessAtATime) {
  const DiskFile file = *DiskFile::create(path_, geometry());
  const Result<DiskFile> second = DiskFile::open(path_, geometry());
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr(path_), HasSubstr("in use by another process")));
  EXPECT_THAT(DiskFile::inspect(path_).error().message, HasSubstr("in use by another process"));
}

TEST_F(DiskFileTest, AReaderKeepsWritersOut) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry());
  }
  const DiskFile seen = *DiskFile::inspect(path_);
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("in use by another process"));
}

TEST_F(DiskFileTest, OneThatIsBeingMadeIsNotTouchedByAnother) {
  const std::string unfinished = path_ + ".new";
  std::ofstream(unfinished) << "what somebody else writes";
  const int other = ::open(unfinished.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(DiskFile::create(path_, geometry()).error().message, HasSubstr("in use by another process"));
  EXPECT_EQ(std::filesystem::file_size(unfinished), 25U);
  ::close(other);
  // A file left behind by a killed process is replaced.
  EXPECT_TRUE(DiskFile::create(path_, geometry()));
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

TEST_F(DiskFileTest, DoesNotWriteThroughAPlantedLink) {
  const std::string unfinished = path_ + ".new";
  const std::string victim = path_ + ".victim";
  std::ofstream(victim) << "what somebody else needs";
  std::filesystem::create_symlink(victim, unfinished);
  const Result<DiskFile> made = DiskFile::create(path_, geometry());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, AllOf(HasSubstr(unfinished), HasSubstr("symbolic link"), HasSubstr("remove it")));
  EXPECT_EQ(std::filesystem::file_size(victim), 24U);
  EXPECT_TRUE(std::filesystem::is_symlink(unfinished)) << "the operator should look at it";
  // A dangling link is not followed either.
  std::filesystem::remove(victim);
  EXPECT_FALSE(DiskFile::create(path_, geometry()));
  EXPECT_FALSE(std::filesystem::exists(victim));
  std::filesystem::remove(unfinished);
  std::filesystem::create_directory(unfinished);
  EXPECT_THAT(DiskFile::create(path_, geometry()).error().message, HasSubstr("no file but a folder"));
  std::filesystem::remove(unfinished);
  // The same at the file's own path.
  std::filesystem::create_symlink(victim, path_);
  EXPECT_FALSE(DiskFile::create(path_, geometry()));
  EXPECT_FALSE(std::filesystem::exists(victim));
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

TEST_F(DiskFileTest, ANameThatIsAnotherUsersIsLeftAlone) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give files away";
  }
  const std::string unfinished = path_ + ".new";
  std::ofstream{unfinished} << "bait";
  ASSERT_EQ(chown(unfinished.c_str(), 12345, 12345), 0);
  EXPECT_THAT(DiskFile::create(path_, geometry()).error().message,
              AllOf(HasSubstr(unfinished), HasSubstr("belongs to user 12345")));
  EXPECT_EQ(std::filesystem::file_size(unfinished), 4U);
  std::filesystem::remove(unfinished);
}

TEST_F(DiskFileTest, OnlyItsUserCanReadIt) {
  const std::string unfinished = path_ + ".new";
  std::ofstream{unfinished};  // left over, and readable by everybody
  std::filesystem::permissions(unfinished, std::filesystem::perms(0666));
  const DiskFile file = *DiskFile::create(path_, geometry());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
}

TEST_F(DiskFileTest, ALinkToTheFileIsFollowed) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry());
  }
  const std::string link = path_ + ".link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_TRUE(DiskFile::open(link, geometry())) << "the operator keeps it elsewhere";
  std::filesystem::remove(link);
}

TEST_F(DiskFileTest, RefusesMoreBytesThanAFileCanHave) {
  DiskGeometry huge = geometry(0xFFFF'FFFE);
  huge.block_bytes = std::uint64_t{1} << 40;
  huge.row_bytes = 1024;
  EXPECT_FALSE(huge.places());
  EXPECT_THAT(DiskFile::create(path_, huge).error().message, HasSubstr("more than a file can have"));
  // 2^64 bytes of blocks: 0 as a 64-bit sum.
  DiskGeometry wraps = geometry(1U << 25);
  wraps.block_bytes = std::uint64_t{1} << 39;
  wraps.row_bytes = 1024;
  EXPECT_FALSE(wraps.places());
  EXPECT_FALSE(disk::encode(disk::Superblock{.geometry = wraps}));
  DiskGeometry no_block_id = geometry(0xFFFF'FFFF);
  EXPECT_FALSE(no_block_id.validate()) << "that number means no block";
  DiskGeometry largest = geometry(0xFFFF'FFFE);
  EXPECT_TRUE(largest.validate());
  EXPECT_EQ(largest.places()->file_bytes, largest.places()->data_offset + 0xFFFF'FFFEULL * 8192);
}

// A superblock with a valid seal whose file would have 2^64 bytes and more: the checked size would be the remainder.
TEST_F(DiskFileTest, ACraftedSuperblockIsDamageAndNothingElse) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry(1));
  }
  std::vector<char> bytes(disk::kSuperblockBytes);
  {
    std::ifstream in(path_, std::ios::binary);
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const auto put = [&bytes](std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[at + i] = static_cast<char>(value >> (8 * i));
    }
  };
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 39;
  put(16, 1U << 25, 4);                     // blocks
  put(28, 1U << 20, 4);                     // bytes a row
  put(32, kBlock, 8);                       // bytes a block
  put(40, (2ULL << 30) + (2ULL << 20), 8);  // where the blocks begin: after 2^25 entries
  put(48, kBlock, 8);                       // from block to block
  const std::span<const std::byte> content = std::as_bytes(std::span(bytes)).first(bytes.size() - 8);
  put(bytes.size() - 8, static_cast<std::uint64_t>(finish(sum_words(content, 0), content.size(), {})), 8);
  overwrite(0, bytes);
  overwrite(disk::kSuperblockBytes, bytes);
  std::filesystem::resize_file(path_, std::uint64_t{3} << 30);
  const Result<DiskFile> refused = DiskFile::inspect(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("contradicts itself"));
}

TEST_F(DiskFileTest, ReadsAndWritesTheAreasOfBlocks) {
  DiskFile file = *DiskFile::create(path_, geometry());
  std::vector<std::byte> written(3 * file.block_step(), std::byte{7});
  ASSERT_TRUE(file.write_blocks(BlockId{97}, written));
  std::vector<std::byte> read(2 * file.block_step());
  ASSERT_TRUE(file.read_blocks(BlockId{96}, read));
  EXPECT_EQ(std::count(read.begin(), read.end(), std::byte{7}), static_cast<std::ptrdiff_t>(file.block_step()));
  EXPECT_DEATH(static_cast<void>(file.read_blocks(BlockId{99}, read)), "within the file");
}

TEST_F(DiskFileTest, RefusesWhatItIsNotACacheOfByName) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry());
  }
  DiskGeometry other = geometry();
  other.space.model = "another";
  other.space.weights_generation = 2;
  other.block_bytes = 6000;
  other.row_bytes = 50;
  const Result<DiskFile> refused = DiskFile::open(path_, other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("model 'm', not 'another'"), HasSubstr("weights generation '0', not '2'"),
                    HasSubstr("bytes a block '5000', not '6000'"), HasSubstr("bytes a row '100', not '50'")));
  DiskGeometry smaller = geometry();
  smaller.blocks = 7;
  EXPECT_THAT(DiskFile::open(path_, smaller).error().message,
              AllOf(HasSubstr(path_ + " has 100 blocks, but the configuration asks for 7"),
                    HasSubstr("run `cairn disk compact --blocks 7 " + path_ + "`")));
  EXPECT_EQ(DiskFile::inspect(path_)->geometry().space.model, "m");
  EXPECT_TRUE(DiskFile::open(path_, geometry())) << "refusing it changed nothing";
}

TEST_F(DiskFileTest, RefusesOtherFormatsOtherFilesAndCutOnes) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry());
  }
  EXPECT_EQ(DiskFile::create(path_, geometry()).error().code, ErrorCode::kAlreadyExists);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("cut off"));
  overwrite(8, {9, 0, 0, 0});
  overwrite(4096 + 8, {9, 0, 0, 0});
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("format 9"));
  std::ofstream(path_) << std::string(10'000, 'x');
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("does not begin as a disk tier"));
  std::ofstream(path_) << "x";
  EXPECT_FALSE(DiskFile::open(path_, geometry()));
  std::filesystem::remove(path_);
  EXPECT_EQ(DiskFile::open(path_, geometry()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(DiskFile::create("/nowhere/at/all", geometry()).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(DiskFile::create(path_, geometry(0)));
  for (const std::uint64_t row_bytes : {0, 300}) {
    DiskGeometry torn = geometry();
    torn.row_bytes = row_bytes;
    EXPECT_THAT(DiskFile::create(path_, torn).error().message, HasSubstr("whole number of rows"));
  }
  EXPECT_THAT(DiskFile::inspect(::testing::TempDir()).error().message, HasSubstr("no file but a folder"));
}

TEST_F(DiskFileTest, OneCopyOfTheSuperblockIsEnough) {
  {
    const DiskFile file = *DiskFile::create(path_, geometry());
  }
  overwrite(100, {1, 2, 3});
  EXPECT_TRUE(DiskFile::open(path_, geometry()));  // which repairs the first
  overwrite(4096 + 100, {1, 2, 3});
  EXPECT_TRUE(DiskFile::open(path_, geometry()));
  overwrite(100, {4, 5, 6});
  overwrite(4096 + 100, {4, 5, 6});
  EXPECT_THAT(DiskFile::open(path_, geometry()).error().message, HasSubstr("superblock is damaged"));
}

TEST_F(DiskFileTest, SkipsAndCountsDamagedEntries) {
  DiskFile file = *DiskFile::create(path_, geometry());
  std::vector<DiskEntry> entries;
  for (std::uint32_t block_id = 0; block_id < 100; ++block_id) {
    entries.push_back(entry(block_id, block_id));
  }
  ASSERT_TRUE(file.put(entries));
  std::mt19937 random(1);
  // A flipped bit anywhere in an entry; an entry in another entry's place; an entry of zeros.
  std::vector<char> bytes(100 * disk::kEntryBytes);
  std::ifstream in(path_, std::ios::binary);
  in.seekg(disk::kEntriesOffset);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (std::uint32_t block_id = 0; block_id < 50; ++block_id) {
    const std::size_t at = block_id * disk::kEntryBytes + random() % disk::kEntryBytes;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
  }
  std::copy_n(bytes.begin() + 70 * 64, 64, bytes.begin() + 60 * 64);
  std::fill_n(bytes.begin() + 61 * 64, 64, 0);
  overwrite(disk::kEntriesOffset, bytes);
  const DiskRecovery recovery = *file.recover();
  EXPECT_EQ(recovery.damaged, 51U);
  EXPECT_EQ(recovery.entries.size(), 48U);
  for (const DiskEntry& found : recovery.entries) {
    EXPECT_EQ(found.key, key(index_of(found.block_id)));
  }
}

TEST_F(DiskFileTest, AgreesWithAMapThroughRandomChangesAndReopenings) {
  std::mt19937 random(5);
  std::map<std::uint32_t, DiskEntry> model;
  DiskFile file = *DiskFile::create(path_, geometry(40));
  for (int step = 0; step < 3000; ++step) {
    const auto block_id = static_cast<std::uint32_t>(random() % 40);
    if (random() % 3 == 0) {
      ASSERT_TRUE(file.erase(std::vector{BlockId{block_id}}));
      model.erase(block_id);
    } else {
      const DiskEntry put = entry(block_id, 1000 + static_cast<std::uint64_t>(step));
      ASSERT_TRUE(file.put(std::vector{put}));
      model[block_id] = put;
    }
    if (step % 100 == 0) {
      {
        const DiskFile closed = std::move(file);
      }
      file = *DiskFile::open(path_, geometry(40));
      const DiskRecovery recovery = *file.recover();
      ASSERT_EQ(recovery.entries.size(), model.size());
      for (const DiskEntry& found : recovery.entries) {
        EXPECT_EQ(found.key, model.at(index_of(found.block_id)).key);
      }
    }
  }
}

}  // namespace
}  // namespace cairn
