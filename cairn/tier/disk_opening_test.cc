#include "cairn/tier/disk_opening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cairn/tier/disk_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class DiskOpeningTest : public DiskFileOfBlocks {
 protected:
  void SetUp() override { write(small_, {{0, 1}, {3, 2}, {4, 3}, {19, 4}}); }

  // The reported damage; the file is closed again.
  std::string opened(DiskOpening opening = DiskOpening::kReuse) {
    Result<OpenedDisk> disk = open_disk(path_, small_, opening);
    if (!disk) {
      return "refused: " + disk.error().message;
    }
    EXPECT_EQ(std::filesystem::file_size(path_), disk->file.file_bytes());
    block_ids_.clear();
    DiskRecovery recovery = *disk->file.recover();
    for (const DiskEntry& entry : recovery.entries) {
      block_ids_.push_back(index_of(entry.block_id));
    }
    recovery_ = recovery;
    return disk->damage;
  }
  void overwrite(const std::string& bytes) const {
    std::ofstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file << bytes;
  }
  [[nodiscard]] std::string damaged() const { return path_ + ".damaged"; }

  const DiskGeometry small_ = geometry(20);
  std::vector<std::uint32_t> block_ids_;
  DiskRecovery recovery_;
};

TEST_F(DiskOpeningTest, AWholeFileIsUsedAndAMissingOneIsMade) {
  EXPECT_EQ(opened(), "");
  EXPECT_THAT(block_ids_, UnorderedElementsAre(0, 3, 4, 19));
  std::filesystem::remove(path_);
  EXPECT_THAT(opened(DiskOpening::kExisting), AllOf(HasSubstr("refused: "), HasSubstr("No such file")));
  EXPECT_EQ(opened(), "");
  EXPECT_TRUE(block_ids_.empty());
}

TEST_F(DiskOpeningTest, WhatIsLeftOfAFileThatWasCutOffIsUsed) {
  const std::uint64_t step = step_of(small_);
  // The last byte of block 4, and then the first byte that follows its last one.
  for (const std::uint64_t end : {small_.block_bytes - 1, small_.block_bytes}) {
    std::filesystem::resize_file(path_, data_offset() + 4 * step + end);
    EXPECT_THAT(opened(DiskOpening::kExisting), AllOf(HasSubstr("refused: "), HasSubstr("was cut off")));
    EXPECT_THAT(opened(), AllOf(HasSubstr(path_ + " was cut off"), HasSubstr("what it holds of its blocks is used")));
    EXPECT_EQ(recovery_.cut_off, end == small_.block_bytes ? 1U : 2U);
    if (end == small_.block_bytes) {
      EXPECT_THAT(block_ids_, UnorderedElementsAre(0, 3, 4));
    } else {
      EXPECT_THAT(block_ids_, UnorderedElementsAre(0, 3));
    }
    std::filesystem::remove(path_);
    SetUp();
  }
  // Within the entries, and within the second superblock: no block is left, but the file still belongs to this model.
  for (const std::uint64_t size : {disk::kEntriesOffset + 100, disk::kEntriesOffset - 100}) {
    std::filesystem::resize_file(path_, size);
    EXPECT_THAT(opened(), HasSubstr("was cut off"));
    EXPECT_EQ(opened(), "") << "it is whole again";
    EXPECT_FALSE(std::filesystem::exists(damaged()));
  }
}

TEST_F(DiskOpeningTest, AFileThatIsTooLongIsCut) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + 12'345);
  EXPECT_THAT(opened(), HasSubstr("is too long"));
  EXPECT_THAT(block_ids_, UnorderedElementsAre(0, 3, 4, 19));
}

TEST_F(DiskOpeningTest, AFileThatCannotBeReadIsRenamedAndOneIsKept) {
  const std::string first = bytes_of_file().replace(0, 8192, std::string(8192, '#'));
  overwrite(std::string(8192, '#'));
  EXPECT_THAT(opened(DiskOpening::kExisting), HasSubstr("refused: "));
  EXPECT_THAT(opened(), HasSubstr("it was renamed to " + damaged() + ", and the tier starts empty"));
  EXPECT_TRUE(block_ids_.empty());
  EXPECT_EQ(std::filesystem::file_size(damaged()), first.size());
  // The next damaged file is not kept, and does not replace the first.
  overwrite(std::string(8192, '!'));
  EXPECT_THAT(opened(), HasSubstr("it was removed, because " + damaged() + " is there already"));
  std::ifstream kept(damaged(), std::ios::binary);
  EXPECT_EQ(kept.get(), '#');
}

TEST_F(DiskOpeningTest, EmptyFilesShortOnesAndOtherFormatsAreReplaced) {
  const std::string whole = bytes_of_file();
  const auto becomes = [&](const std::string& bytes) {
    std::filesystem::remove(path_);
    std::filesystem::remove(damaged());
    std::ofstream(path_, std::ios::binary) << bytes;
    EXPECT_THAT(opened(), HasSubstr("the tier starts empty")) << bytes.size();
    EXPECT_TRUE(std::filesystem::exists(damaged()));
  };
  becomes("");
  becomes(std::string(100'000, '\0'));
  becomes(whole.substr(0, 3000));
  std::string other_format = whole;
  other_format[8] = 99;
  other_format[4096 + 8] = 99;
  becomes(other_format);
  // Noise in the superblocks, and a truncated file: the entries show that it is a disk tier's file.
  becomes(std::string(8192, '#') + whole.substr(8192, 64));
}

TEST_F(DiskOpeningTest, AFileOfSomethingElseIsLeftAlone) {
  const std::string letter = "Dear reader, " + std::string(100'000, 'x');
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << letter;
  for (const DiskOpening opening : {DiskOpening::kReuse, DiskOpening::kExisting, DiskOpening::kFresh}) {
    EXPECT_THAT(opened(opening), AllOf(HasSubstr("refused: "), HasSubstr(path_)));
    EXPECT_EQ(bytes_of_file(), letter);
  }
  EXPECT_FALSE(std::filesystem::exists(damaged()));
}

TEST_F(DiskOpeningTest, AFileOfAnotherModelIsAnErrorAndNotDamage) {
  DiskGeometry other = small_;
  other.space.model = "another";
  const Result<OpenedDisk> refused = open_disk(path_, other, DiskOpening::kReuse);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("model 'm', not 'another'"));
  // The same with a wrong length: only a matching configuration repairs the file.
  const std::uint64_t size = data_offset() + 100;
  std::filesystem::resize_file(path_, size);
  EXPECT_FALSE(open_disk(path_, other, DiskOpening::kReuse));
  EXPECT_EQ(std::filesystem::file_size(path_), size);
}

TEST_F(DiskOpeningTest, AFileInUseIsNotReplaced) {
  overwrite(std::string(8192, '#'));
  const int user = *disk::open_locked(path_, disk::Access::kRead);
  for (const DiskOpening opening : {DiskOpening::kReuse, DiskOpening::kFresh}) {
    EXPECT_THAT(opened(opening), HasSubstr("in use by another process"));
  }
  ::close(user);
  EXPECT_FALSE(std::filesystem::exists(damaged()));
}

TEST_F(DiskOpeningTest, FreshReplacesDamagedFilesToo) {
  overwrite(std::string(8192, '#'));
  EXPECT_EQ(opened(DiskOpening::kFresh), "");
  EXPECT_TRUE(block_ids_.empty());
  EXPECT_FALSE(std::filesystem::exists(damaged()));
}

TEST_F(DiskOpeningTest, ALinkStaysOne) {
  const std::string target = folder_.in("target");
  std::filesystem::rename(path_, target);
  std::filesystem::create_symlink(target, path_);
  EXPECT_EQ(opened(), "");
  overwrite(std::string(8192, '#'));
  EXPECT_THAT(opened(), HasSubstr("renamed to " + std::filesystem::canonical(target).string() + ".damaged"));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_TRUE(std::filesystem::exists(target));
  EXPECT_EQ(opened(DiskOpening::kFresh), "");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(DiskOpeningTest, EntriesThatCannotBeReadAreDamaged) {
  std::filesystem::remove(path_);
  const DiskGeometry many = geometry(300);
  write(many, {{0, 1}, {299, 2}});
  DiskFile file = *DiskFile::open(path_, many);
  std::filesystem::resize_file(path_, disk::kEntriesOffset + 2 * 4096);  // while it is open: the rest cannot be read
  const DiskRecovery recovery = *file.recover();
  EXPECT_EQ(recovery.entries.size(), 1U);
  EXPECT_EQ(recovery.damaged, 300U - 128U);
}

}  // namespace
}  // namespace cairn
