// An engine that is started with other tensor- and pipeline-parallel sizes on the same disk tier.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cairn/tier/disk_reshard.h"
#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

class ReshardedTiersTest : public testing::Test {
 protected:
  ReshardedTiersTest() {
    std::filesystem::create_directories(folder_);
    config_ = plain_config();
    config_.processes = true;
    config_.host_blocks = 64;
    config_.disk = (folder_ / "blocks").string();
  }
  ~ReshardedTiersTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("cairn_engine_reshard_" + std::to_string(::getpid()));
  EngineConfig config_;
};

TEST_F(ReshardedTiersTest, AChangeOfSizesKeepsTheDiskTier) {
  config_.ranks = 2;
  const RunFigures first = run(config_);
  // Sanitizers make the model ten times slower.
  const std::vector<RankGrid> grids =
      CAIRN_SANITIZED ? std::vector<RankGrid>{{1, 2}} : std::vector<RankGrid>{{4}, {1, 2}, {2, 2}, {2}};
  for (const RankGrid& grid : grids) {
    config_.ranks = grid;
    EXPECT_FALSE(run_engine(config_)) << grid.to_string() << " would have lost the files of another grid";
    const Result<Resharding> done = reshard(config_.disk, {.grid = grid});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_GT(done->moved, 0U);
    EXPECT_EQ(done->wrong, 0U);
    const RunFigures again = run(config_);
    EXPECT_EQ(again.token_digest, first.token_digest) << grid.to_string();
    EXPECT_EQ(again.logit_digest, first.logit_digest) << grid.to_string();
    EXPECT_GT(again.tiers.loaded_tokens, first.tiers.loaded_tokens) << grid.to_string();
    EXPECT_LT(again.scheduler.computed_tokens, first.scheduler.computed_tokens) << grid.to_string();
    EXPECT_EQ(again.tiers.missing_tokens, 0U) << grid.to_string();
  }
}

// Ranks that hold the same heads share one file, before and after.
TEST_F(ReshardedTiersTest, ReplicasShareTheNewFilesAsTheOldOnes) {
  const struct {
    EngineModel model;
    RankGrid from;
    RankGrid to;
    std::size_t files;  // of the new ranks
  } changes[] = {{EngineModel::kFewHeads, {4}, {1}, 1}, {EngineModel::kMla, {2}, {4, 2}, 2}};
  for (const auto& change : changes) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_.model = change.model;
    config_.ranks = change.from;
    const RunFigures first = run(config_);
    const Result<Resharding> done = reshard(config_.disk, {.grid = change.to});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->wrong, 0U);
    EXPECT_EQ(done->to.size(), change.files);
    config_.ranks = change.to;
    const RunFigures again = run(config_);
    EXPECT_EQ(again.token_digest, first.token_digest) << change.to.to_string();
    EXPECT_GT(again.tiers.loaded_tokens, first.tiers.loaded_tokens) << change.to.to_string();
    EXPECT_EQ(again.tiers.missing_tokens, 0U) << change.to.to_string();
  }
}

}  // namespace
}  // namespace cairn::engine
