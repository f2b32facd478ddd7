#include "cairn/cli/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cairn/tier/disk_ranks_testing.h"
#include "cairn/tier/disk_testing.h"

namespace cairn::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DiskCommandTest : public DiskFileOfBlocks {
 protected:
  using Work = Result<DiskEnd> (*)(const DiskOptions&, const DiskStreams&);
  static constexpr Work kAll[] = {&inspect_disk, &verify_disk, &compact_disk};

  // Ten of twenty blocks are used.
  void SetUp() override {
    write(small_, {{9, 0}, {3, 1}, {4, 2}, {5, 3}, {19, 4}, {0, 5}, {1, 6}, {2, 7}, {8, 8}, {7, 9}});
  }

  std::string output_of(Work work, const DiskOptions& options, DiskEnd wanted) {
    std::ostringstream out;
    const Result<DiskEnd> end = work(options, {.out = out, .log = log_, .stop = stop_, .clock = clock_});
    EXPECT_TRUE(end) << end.error().message;
    EXPECT_EQ(end ? *end : DiskEnd::kGood, wanted) << out.str();
    return out.str();
  }
  nlohmann::json json_of(Work work, DiskOptions options, DiskEnd wanted = DiskEnd::kGood) {
    options.json = true;
    return nlohmann::json::parse(output_of(work, options, wanted));
  }
  std::string error_of(Work work, const DiskOptions& options) {
    std::ostringstream out;
    const Result<DiskEnd> end = work(options, {.out = out, .log = log_, .stop = stop_, .clock = clock_});
    EXPECT_EQ(out.str(), "");
    return end ? "none" : end.error().message;
  }

  const DiskGeometry small_ = geometry(20);
  std::ostringstream log_;
  std::atomic<bool> stop_{false};
  ManualClock clock_;
};

TEST_F(DiskCommandTest, InspectNamesTheModelOfTheBlocks) {
  const std::string text = output_of(&inspect_disk, {.path = path_}, DiskEnd::kGood);
  EXPECT_THAT(text,
              AllOf(HasSubstr(path_ + ": a disk tier, format 2, closed cleanly"), HasSubstr("model               m\n"),
                    HasSubstr("tenant              t\n"), HasSubstr("weights generation  3\n"),
                    HasSubstr("layout              contiguous-nhd\n"), HasSubstr("element type        bf16\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("shard               tp0/2\n"), HasSubstr("key scheme          native\n"),
                          HasSubstr("a block             16 tokens, 5,000 bytes in rows of 100\n"),
                          HasSubstr("file                2,260,992 bytes, "), HasSubstr("blocks              20\n"),
                          HasSubstr("used                10 (50.0 %)\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("sequences           3\n"), HasSubstr("2-3                  4\n"),
                          Not(HasSubstr(key(4).to_string()))));
}

TEST_F(DiskCommandTest, InspectListsKeysOldestFirst) {
  const std::string text = output_of(&inspect_disk, {.path = path_, .keys = true}, DiskEnd::kGood);
  EXPECT_LT(text.find(key(0).to_string()), text.find(key(9).to_string()));
  EXPECT_THAT(text, HasSubstr("        19         5  "));
}

TEST_F(DiskCommandTest, InspectWritesJson) {
  const auto json = json_of(&inspect_disk, {.path = path_, .keys = true});
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["closed_in_order"], true);
  EXPECT_EQ(json["row_bytes"], 100);
  EXPECT_EQ(json["used"], 10);
  EXPECT_EQ(json["sequences"], 3);
  EXPECT_GE(json["allocated_bytes"], 10 * 5000);
  EXPECT_EQ(json["depths"][2], (nlohmann::json{{"from", 2}, {"to", 3}, {"blocks", 4}}));
  EXPECT_EQ(json["entries"].size(), 10U);
  EXPECT_EQ(json["entries"][0]["block"], 9);
  EXPECT_EQ(json["entries"][0]["key"], key(0).to_string());
  EXPECT_FALSE(json_of(&inspect_disk, {.path = path_}).contains("entries"));
}

TEST_F(DiskCommandTest, InspectTellsOfDamageAndOfAnEndOutOfOrder) {
  damage_entry(5);
  flip_byte(disk::kEntriesOffset - 100);  // one of two superblocks
  EXPECT_THAT(output_of(&inspect_disk, {.path = path_}, DiskEnd::kWrong), HasSubstr("damaged entries     1\n"));
  EXPECT_EQ(json_of(&inspect_disk, {.path = path_}, DiskEnd::kWrong)["damaged"], 1);
  const std::string copy = folder_.in("copy");
  {
    const DiskFile open = *DiskFile::open(path_, small_);
    std::filesystem::copy_file(path_, copy);
  }
  EXPECT_THAT(output_of(&inspect_disk, {.path = copy}, DiskEnd::kWrong), HasSubstr("not closed cleanly"));
}

TEST_F(DiskCommandTest, AFileWithoutBlocksIsAllRight) {
  std::filesystem::remove(path_);
  write(small_, {});
  const auto json = json_of(&inspect_disk, {.path = path_, .keys = true});
  EXPECT_EQ(json["used"], 0);
  EXPECT_EQ(json["sequences"], 0);
  EXPECT_EQ(json["entries"], nlohmann::json::array());
  EXPECT_THAT(output_of(&inspect_disk, {.path = path_, .keys = true}, DiskEnd::kGood),
              HasSubstr("used                0 (0.0 %)"));
  EXPECT_THAT(output_of(&verify_disk, {.path = path_}, DiskEnd::kGood), HasSubstr("0 of 0 blocks are right"));
  EXPECT_EQ(json_of(&compact_disk, {.path = path_})["kept"], 0);
}

TEST_F(DiskCommandTest, VerifyFindsWhatIsWrong) {
  EXPECT_EQ(output_of(&verify_disk, {.path = path_}, DiskEnd::kGood), path_ + ": 10 of 10 blocks are right\n");
  damage_block(small_, 4);
  damage_entry(7);
  const std::string text = output_of(&verify_disk, {.path = path_}, DiskEnd::kWrong);
  EXPECT_THAT(text,
              AllOf(HasSubstr(": 8 of 9 blocks are right"), HasSubstr("wrong: block 4, key " + key(2).to_string()),
                    HasSubstr("damaged: 1 entries"), HasSubstr("cairn disk compact")));
  const auto json = json_of(&verify_disk, {.path = path_}, DiskEnd::kWrong);
  EXPECT_EQ(json["right"], 8);
  EXPECT_EQ(json["wrong"][0]["key"], key(2).to_string());
  EXPECT_EQ(json["wrong"].size(), 1U);
  EXPECT_EQ(json["unreadable"].size(), 0U);
  EXPECT_EQ(log_.str(), "") << "it took no time";
}

TEST_F(DiskCommandTest, VerifyListsAFewOfMany) {
  std::filesystem::remove(path_);
  const DiskGeometry more = geometry(40);
  std::vector<Placed> blocks;
  for (std::uint32_t i = 0; i < 30; ++i) {
    blocks.push_back({i, i});
  }
  write(more, blocks);
  for (std::uint32_t i = 0; i < 25; ++i) {
    damage_block(more, i);
  }
  EXPECT_THAT(output_of(&verify_disk, {.path = path_}, DiskEnd::kWrong),
              AllOf(HasSubstr("block 19,"), Not(HasSubstr("block 20,")), HasSubstr("and 5 more that are wrong")));
  EXPECT_EQ(json_of(&verify_disk, {.path = path_}, DiskEnd::kWrong)["wrong"].size(), 25U);
}

TEST_F(DiskCommandTest, CompactLeavesAFileThatVerifies) {
  damage_block(small_, 4);
  damage_entry(7);
  EXPECT_THAT(output_of(&compact_disk, {.path = path_}, DiskEnd::kGood),
              HasSubstr(": 8 blocks kept, 1 were wrong, 0 older ones had no room; 20 blocks, 2,260,992 bytes"));
  EXPECT_THAT(output_of(&verify_disk, {.path = path_}, DiskEnd::kGood), HasSubstr("8 of 8 blocks are right"));
  const auto json = json_of(&compact_disk, {.path = path_, .blocks = 3});
  EXPECT_EQ(json["kept"], 3);
  EXPECT_EQ(json["left_out"], 5);
  EXPECT_EQ(json["blocks"], 3);
  EXPECT_EQ(json_of(&inspect_disk, {.path = path_, .keys = true})["entries"][2]["key"], key(8).to_string());
}

TEST_F(DiskCommandTest, ReportsProgressAndStopsOnRequest) {
  class SlowClock final : public Clock {
   public:
    [[nodiscard]] TimePoint now() const override { return std::chrono::milliseconds(600 * ++asked_); }

   private:
    mutable int asked_ = 0;
  } slow;
  std::ostringstream out;
  ASSERT_TRUE(compact_disk({.path = path_}, {.out = out, .log = log_, .stop = stop_, .clock = slow}));
  EXPECT_EQ(log_.str(), "") << "not into a pipe or a file";
  ASSERT_TRUE(compact_disk({.path = path_},
                           {.out = out, .log = log_, .stop = stop_, .clock = slow, .log_is_a_terminal = true}));
  EXPECT_THAT(log_.str(), HasSubstr("read 2 of 10 blocks\nread 4 of 10 blocks\n"));
  stop_ = true;
  EXPECT_THAT(error_of(&verify_disk, {.path = path_}), HasSubstr("stopped after"));
  EXPECT_THAT(error_of(&compact_disk, {.path = path_}), HasSubstr("is as it was"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".compact"));
}

TEST_F(DiskCommandTest, RefusesWhatIsNotADiskTiersFileByName) {
  const std::string other = folder_.in("other");
  std::ofstream(other) << std::string(20'000, 'x');
  const std::string empty = folder_.in("empty");
  std::ofstream{empty};
  const std::string brief = folder_.in("brief");
  std::ofstream(brief) << "a letter";
  const std::string cut = folder_.in("cut");
  std::filesystem::copy_file(path_, cut);
  std::filesystem::resize_file(cut, 1'000'000);
  const std::string barely = folder_.in("barely");
  std::filesystem::copy_file(path_, barely);
  std::filesystem::resize_file(barely, 5000);
  for (const Work work : kAll) {
    EXPECT_THAT(error_of(work, {.path = other}), AllOf(HasSubstr(other), HasSubstr("does not begin as a disk tier")));
    EXPECT_THAT(error_of(work, {.path = empty}), AllOf(HasSubstr(empty), HasSubstr("is empty")));
    EXPECT_THAT(error_of(work, {.path = brief}), AllOf(HasSubstr(brief), HasSubstr("is too short")));
    EXPECT_THAT(error_of(work, {.path = cut}), AllOf(HasSubstr(cut), HasSubstr("cut off")));
    EXPECT_THAT(error_of(work, {.path = barely}), AllOf(HasSubstr(barely), HasSubstr("cut off")));
    EXPECT_THAT(error_of(work, {.path = folder_.path()}), HasSubstr("no file but a folder"));
    EXPECT_THAT(error_of(work, {.path = folder_.in("none")}), HasSubstr("No such file"));
  }
}

TEST_F(DiskCommandTest, RefusesAFileInUse) {
  const DiskFile user = *DiskFile::open(path_, small_);
  for (const Work work : kAll) {
    EXPECT_THAT(error_of(work, {.path = path_}), AllOf(HasSubstr(path_), HasSubstr("in use by another process")));
  }
}

class RankedDiskCommandTest : public RankedDisk {
 protected:
  using Work = Result<DiskEnd> (*)(const DiskOptions&, const DiskStreams&);
  std::string output_of(Work work, const DiskOptions& options, DiskEnd wanted = DiskEnd::kGood) {
    std::ostringstream out;
    const Result<DiskEnd> end = work(options, {.out = out, .log = log_, .stop = stop_, .clock = clock_});
    EXPECT_TRUE(end) << end.error().message;
    EXPECT_EQ(end ? *end : DiskEnd::kGood, wanted) << out.str();
    return out.str();
  }
  std::string error_of(Work work, const DiskOptions& options) {
    std::ostringstream out;
    const Result<DiskEnd> end = work(options, {.out = out, .log = log_, .stop = stop_, .clock = clock_});
    return end ? "none" : end.error().message;
  }
  std::ostringstream log_;
  std::atomic<bool> stop_{false};
  ManualClock clock_;
};

TEST_F(RankedDiskCommandTest, InspectSaysWhichGridWroteTheFiles) {
  write({2, 2}, 3);
  EXPECT_THAT(output_of(&inspect_disk, {.path = path_}),
              AllOf(HasSubstr("files of ranks      4 files: 2 pipeline stages, heads in 2 parts\n"),
                    HasSubstr(path_ + ".l3-4.h2-3\n"), HasSubstr("used                3 (15.0 %)")));
  const auto json = nlohmann::json::parse(output_of(&inspect_disk, {.path = path_, .json = true}));
  EXPECT_EQ(json["ranks"]["stages"], 2);
  EXPECT_EQ(json["ranks"]["files"].size(), 4U);
  EXPECT_THAT(
      output_of(&inspect_disk, {.path = path_ + ".l3-4.h2-3"}),
      AllOf(HasSubstr("used                see " + path_ + ": this is one rank's part"), Not(HasSubstr("sequences"))));
}

TEST_F(RankedDiskCommandTest, VerifyReadsTheFilesOfAllRanks) {
  write({2}, 5);
  EXPECT_THAT(output_of(&verify_disk, {.path = path_}), HasSubstr("5 of 5 blocks are right"));
  damage("l0-4.h0-1", 2);
  EXPECT_THAT(output_of(&verify_disk, {.path = path_}, DiskEnd::kWrong),
              AllOf(HasSubstr("4 of 5 blocks are right"), HasSubstr("wrong: block 2")));
  EXPECT_THAT(error_of(&verify_disk, {.path = path_ + ".l0-4.h0-1"}), HasSubstr("give the leader's file, " + path_));
}

TEST_F(RankedDiskCommandTest, CompactDoesNotEmptyTheFileOfARank) {
  write({2}, 5);
  const auto before = folder();
  EXPECT_THAT(error_of(&compact_disk, {.path = path_ + ".l0-4.h0-1"}), HasSubstr("holds the part of one rank"));
  EXPECT_THAT(error_of(&compact_disk, {.path = path_}), HasSubstr("`cairn disk reshard`"));
  EXPECT_TRUE(folder() == before);
}

TEST_F(RankedDiskCommandTest, ReshardSaysWhatItDoesAndDid) {
  write({2}, 5);
  EXPECT_THAT(output_of(&reshard_disk, {.path = path_, .tensor = 4, .dry_run = true}),
              AllOf(HasSubstr("would rewrite 5 blocks for 4 ranks"), HasSubstr("from  " + path_ + ".l0-4.h0-1\n"),
                    HasSubstr("to    " + path_ + ".l0-4.h3-3\n")));
  damage("l0-4.h0-1", 2);
  EXPECT_THAT(output_of(&reshard_disk, {.path = path_, .tensor = 4, .pipeline = 2}, DiskEnd::kWrong),
              HasSubstr("4 blocks rewritten for 8 ranks (4 tensor x 2 pipeline), 1 were wrong and are dropped"));
  EXPECT_THAT(output_of(&reshard_disk, {.path = path_, .tensor = 4, .pipeline = 2}),
              HasSubstr("has the files of 8 ranks (4 tensor x 2 pipeline) already"));
  const auto json = nlohmann::json::parse(output_of(&reshard_disk, {.path = path_, .json = true}));
  EXPECT_EQ(json["moved"], 4);
  EXPECT_EQ(json["from"].size(), 8U);
  EXPECT_EQ(json["to"], nlohmann::json::parse(R"(["l0-4.h0-3"])"));
}

TEST_F(RankedDiskCommandTest, ReshardStopsOnRequest) {
  write({2}, 5);
  const auto before = folder();
  stop_ = true;
  EXPECT_THAT(error_of(&reshard_disk, {.path = path_, .tensor = 4}), HasSubstr("are as they were"));
  EXPECT_TRUE(folder() == before);
}

}  // namespace
}  // namespace cairn::cli
