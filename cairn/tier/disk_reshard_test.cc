#include "cairn/tier/disk_reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <new>
#include <tuple>

#include "cairn/tier/disk_format.h"
#include "cairn/tier/disk_ranks_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Folder = std::map<std::string, std::string>;

class ReshardTest : public RankedDisk {
 protected:
  void expect_all_right(std::uint64_t count) const {
    Result<RankFiles> files = RankFiles::open(path_);
    ASSERT_TRUE(files) << files.error().message;
    const DiskRecovery recovery = *files->leader().recover();
    EXPECT_EQ(recovery.entries.size(), count);
    EXPECT_EQ(check_blocks(*files, recovery.entries)->right.size(), count);
  }
  void restore(const Folder& files) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::filesystem::remove(entry.path());
    }
    for (const auto& [name, bytes] : files) {
      std::ofstream(folder_.in(name), std::ios::binary) << bytes;
      std::filesystem::permissions(folder_.in(name), std::filesystem::perms(0600));
    }
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, bytes] : folder()) {
      all.push_back(name);
    }
    return all;
  }
};

TEST_F(ReshardTest, NewRanksFindTheBlocksOfTheOldOnes) {
  write({2}, 6);
  const Resharding done = *reshard(path_, {.grid = {4, 2}});
  EXPECT_THAT(done.from, ElementsAre("l0-4.h0-1", "l0-4.h2-3"));
  EXPECT_EQ(done.to.size(), 8U);
  EXPECT_THAT(done.kept, ElementsAre());
  EXPECT_EQ(std::tuple(done.entries, done.moved, done.wrong), std::tuple(6U, 6U, 0U));
  EXPECT_THAT(names(),
              ElementsAre("blocks", "blocks.l0-2.h0-0", "blocks.l0-2.h1-1", "blocks.l0-2.h2-2", "blocks.l0-2.h3-3",
                          "blocks.l3-4.h0-0", "blocks.l3-4.h1-1", "blocks.l3-4.h2-2", "blocks.l3-4.h3-3"));
  expect_all_right(6);
}

// From every grid to every other: the files are those that the ranks of the new grid would have written.
TEST_F(ReshardTest, EveryDirectionGivesTheFilesThatTheRanksWouldHaveWritten) {
  const KvShape shapes[] = {
      {.layers = 5, .kv = 2, .page_size = 4, .heads = 4, .head_size = 24, .element_bits = 8},
      {.layers = 3, .kv = 2, .page_size = 2, .heads = 8, .head_size = 10, .element_bits = 8},  // rows that are padded
      {.layers = 6, .kv = 1, .page_size = 4, .heads = 1, .head_size = 40, .element_bits = 8},  // MLA
      {.layers = 4, .kv = 2, .page_size = 3, .heads = 2, .head_size = 16, .element_bits = 8},  // fewer heads than ranks
  };
  const RankGrid grids[] = {{1}, {2}, {4}, {1, 2}, {2, 2}, {4, 2}};
  for (const KvShape& shape : shapes) {
    whole_ = shape;
    std::vector<Folder> as_written;
    for (const RankGrid& grid : grids) {
      restore({});
      write(grid, 3);
      as_written.push_back(folder());
    }
    // Every ordered pair once: from each grid to each later one and back.
    restore(as_written[0]);
    std::size_t at = 0;
    const auto go = [&](std::size_t to) {
      const Result<Resharding> done = reshard(path_, {.grid = grids[to]});
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_EQ(done->wrong, 0U);
      ASSERT_TRUE(folder() == as_written[to]) << grids[at].to_string() << " to " << grids[to].to_string();
      at = to;
    };
    for (std::size_t from = 0; from < std::size(grids); ++from) {
      go(from);
      for (std::size_t to = from + 1; to < std::size(grids); ++to) {
        go(to);
        go(from);
      }
    }
  }
}

TEST_F(ReshardTest, StagesMayHaveAnyNumbersOfLayers) {
  write({2, 2}, 4, {4, 1});
  const Folder before = folder();
  const Resharding done = *reshard(path_, {.grid = {2, 3}, .stage_layers = {2, 2, 1}});
  EXPECT_THAT(done.kept, ElementsAre("l4-4.h0-1", "l4-4.h2-3")) << "the last stage is the same";
  expect_all_right(4);
  ASSERT_TRUE(reshard(path_, {.grid = {2, 2}, .stage_layers = {4, 1}}));
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, TheSameGridIsNothingToDo) {
  write({2}, 4);
  const Folder before = folder();
  const Resharding done = *reshard(path_, {.grid = {2}});
  EXPECT_EQ(done.kept, done.to);
  EXPECT_EQ(done.new_bytes, 0U);
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, ADryRunChangesNothing) {
  write({2}, 4);
  const Folder before = folder();
  const Resharding done = *reshard(path_, {.grid = {1}, .dry_run = true});
  EXPECT_EQ(done.entries, 4U);
  EXPECT_EQ(done.moved, 0U);
  EXPECT_GT(done.new_bytes, 0U);
  EXPECT_GT(done.old_bytes, 0U);
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, ADamagedBlockIsDroppedAndCounted) {
  write({2}, 6);
  damage("l0-4.h2-3", 3);
  const Resharding done = *reshard(path_, {.grid = {4}});
  EXPECT_EQ(done.moved, 5U);
  EXPECT_EQ(done.wrong, 1U);
  expect_all_right(5);
}

// Whatever the reason, it is not a few damaged blocks.
TEST_F(ReshardTest, FilesWithoutOneRightBlockStayAsTheyAre) {
  write({2}, 2);
  damage("l0-4.h2-3", 0);
  damage("l0-4.h0-1", 1);
  const Folder before = folder();
  EXPECT_THAT(reshard(path_, {.grid = {4}}).error().message, HasSubstr("none of the 2 blocks"));
  EXPECT_TRUE(folder() == before);
}

// Damage in an entry or a block of another key never gets into the new files as something that is right.
TEST_F(ReshardTest, ABlockInAnotherPlaceIsDropped) {
  write({1}, 6);
  {
    const std::string name = path_ + ".l0-4.h0-3";
    const DiskGeometry geometry = DiskFile::inspect(name)->geometry();
    ASSERT_TRUE(DiskFile::open(name, geometry)->write_blocks(BlockId{2}, block(3)));
  }
  EXPECT_EQ(reshard(path_, {.grid = {2}})->wrong, 1U);
  expect_all_right(5);
}

TEST_F(ReshardTest, StopsOnRequestAndLeavesNothingBehind) {
  write({2}, 6);
  const Folder before = folder();
  const Result<Resharding> done =
      reshard(path_, {.grid = {4}}, [](std::uint64_t count, std::uint64_t) { return count < 3; });
  EXPECT_EQ(done.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(folder(), before);
  EXPECT_THROW(static_cast<void>(
                   reshard(path_, {.grid = {4}}, [](std::uint64_t, std::uint64_t) -> bool { throw std::bad_alloc(); })),
               std::bad_alloc);
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, KilledWhileItCopiesItLeavesTheOldTierAndTheNextOneFinishes) {
  write({2}, 4);
  const Folder before = folder();
  for (std::uint64_t stop = 1; stop <= 4; ++stop) {
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(reshard(path_, {.grid = {4, 2}}, [stop](std::uint64_t count, std::uint64_t) {
        return count == stop ? raise(SIGKILL) == 0 : true;
      }));
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_THAT(names(), Contains("blocks.l0-2.h0-0.reshard"));
    EXPECT_THAT(files_of_another_grid(path_, "l0-4.h0-1"), ElementsAre()) << "the old ranks can start";
    expect_all_right(4);
    // To another grid than before: what was left of that one is removed.
    ASSERT_TRUE(reshard(path_, {.grid = {1}}));
    EXPECT_THAT(names(), ElementsAre("blocks", "blocks.l0-4.h0-3"));
    expect_all_right(4);
    restore(before);
  }
}

// Each state that a kill can leave after all new files are complete.
TEST_F(ReshardTest, KilledWhileItReplacesTheFilesTheNextOneFinishes) {
  write({2}, 4);
  const Folder before = folder();
  ASSERT_TRUE(reshard(path_, {.grid = {4}}));
  const Folder after = folder();
  std::string journal = "cairn reshard 1\n";
  std::vector<std::string> made;
  std::vector<std::string> old;
  for (const auto& [name, bytes] : after) {
    if (!before.contains(name)) {
      made.push_back(name);
      journal += "new " + name.substr(7) + "\n";
    }
  }
  for (const auto& [name, bytes] : before) {
    if (!after.contains(name)) {
      old.push_back(name);
      journal += "old " + name.substr(7) + "\n";
    }
  }
  journal += "end\n";
  ASSERT_EQ(made.size(), 4U);
  ASSERT_EQ(old.size(), 2U);
  for (std::size_t steps = 0; steps <= made.size() + old.size(); ++steps) {
    Folder state = before;
    state["blocks.reshard"] = journal;
    for (std::size_t i = 0; i < made.size(); ++i) {
      state[made[i] + (i < steps ? "" : ".reshard")] = after.at(made[i]);
    }
    for (std::size_t i = 0; i + made.size() < steps; ++i) {
      state.erase(old[i]);
    }
    restore(state);
    EXPECT_FALSE(reshard(path_, {.grid = {4}, .dry_run = true}));
    EXPECT_EQ(folder(), state);
    const Result<Resharding> done = reshard(path_, {.grid = {4}});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_TRUE(done->finished_earlier);
    EXPECT_EQ(folder(), after) << steps;
    restore(state);
    ASSERT_TRUE(reshard(path_, {.grid = {2}})) << "and back at once";
    EXPECT_EQ(folder(), before) << steps;
  }
}

TEST_F(ReshardTest, AJournalThatIsNotOursChangesNothing) {
  write({2}, 2);
  std::ofstream(path_ + ".reshard") << "cairn reshard 1\nold ../../secret\nend\n";
  const Folder before = folder();
  EXPECT_THAT(reshard(path_, {.grid = {4}}).error().message, HasSubstr("is not what `cairn disk reshard` writes"));
  std::ofstream(path_ + ".reshard") << "cairn reshard 1\nold l0-4.h0-1\n";
  EXPECT_FALSE(reshard(path_, {.grid = {4}})) << "half of one";
  EXPECT_EQ(folder().size(), before.size());
}

TEST_F(ReshardTest, ATierThatStartsAnewIsFreeOfOtherGrids) {
  write({2}, 2);
  std::ofstream(path_ + ".reshard") << "left";
  std::ofstream(path_ + ".l0-4.h0-3.reshard") << "left";
  std::ofstream(path_ + ".l0-4.h0-0.reshard.new") << "left";
  std::ofstream(path_ + ".l9-9.h0-3") << "of another stage";
  ASSERT_TRUE(remove_other_grids(path_, "l0-4.h0-0"));
  EXPECT_THAT(names(), ElementsAre("blocks", "blocks.l0-4.h2-3", "blocks.l9-9.h0-3"));
}

TEST_F(ReshardTest, RefusesATierInUse) {
  write({2}, 2);
  const Folder before = folder();
  for (const char* const name : {"", ".l0-4.h0-1"}) {
    const DiskFile user = *DiskFile::inspect(path_ + name);
    EXPECT_THAT(reshard(path_, {.grid = {4}}).error().message, HasSubstr("in use by another process"));
  }
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, RefusesAGridThatDoesNotFitTheModel) {
  write({2}, 2);
  const Folder before = folder();
  EXPECT_THAT(reshard(path_, {.grid = {3}}).error().message, HasSubstr("4 heads cannot be dealt to 3 ranks"));
  EXPECT_EQ(folder(), before);
}

TEST_F(ReshardTest, NeedsRoomForTheNewFiles) {
  // Files with holes, of more bytes than any disk of a test has.
  whole_ = {.layers = 1, .kv = 1, .page_size = 1, .heads = 2, .head_size = 1U << 30U, .element_bits = 8};
  blocks_ = 4000;
  const auto write_holes = [](const std::string& path, const DiskGeometry& geometry) {
    const auto superblock = *disk::encode(disk::Superblock{.geometry = geometry, .clean = true});
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(superblock.data()), superblock.size());
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    std::error_code none;
    std::filesystem::resize_file(path, geometry.places()->file_bytes, none);
    return !none;
  };
  DiskGeometry geometry = leader_geometry();
  ASSERT_TRUE(write_holes(path_, geometry));
  geometry.space.weights_generation = 0;
  geometry.space.shard = "l0-0.h0-1";
  geometry.keeps_secret = false;
  geometry.secret.reset();
  geometry.block_bytes = whole_.block_bytes();
  geometry.row_bytes = whole_.row_bytes();
  if (!write_holes(path_ + ".l0-0.h0-1", geometry)) {
    GTEST_SKIP() << "the file system has no files of so many bytes";
  }
  const Result<Resharding> done = reshard(path_, {.grid = {2}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(done.error().message, AllOf(HasSubstr("bytes and "), HasSubstr("are free; make room")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(ReshardTest, ALinkStaysBesideWhichTheNewFilesAre) {
  write({2}, 2);
  std::filesystem::create_directory(folder_.in("large_disk"));
  std::filesystem::rename(path_ + ".l0-4.h0-1", folder_.in("large_disk/part"));
  std::filesystem::create_symlink(folder_.in("large_disk/part"), path_ + ".l0-4.h0-1");
  ASSERT_TRUE(reshard(path_, {.grid = {1}}));
  expect_all_right(2);
  EXPECT_FALSE(std::filesystem::exists(folder_.in("large_disk/part"))) << "its blocks are in the new file";
}

}  // namespace
}  // namespace cairn
