// An engine whose processes are all killed in mid-run: the next one starts on what is on disk, and generates the same text.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_reshard.h"
#include "examples/engine/engine_process_testing.h"
#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

struct Killed {
  EngineModel model;
  RankGrid ranks;
  RankGrid later;      // of the engine after resharding
  std::size_t blocks;  // on disk when it is killed
};

void PrintTo(const Killed& killed, std::ostream* out) {
  PrintTo(ModelAndRanks{killed.model, killed.ranks}, out);
  *out << ", then " << killed.later.to_string();
}

class KilledEngineTest : public testing::TestWithParam<Killed> {
 protected:
  KilledEngineTest() {
    config_ = plain_config();
    config_.model = GetParam().model;
    config_.ranks = GetParam().ranks;
    config_.processes = true;
    config_.host_blocks = 64;
  }

  // Starts engines until one is killed before it is done; on a busy machine this process may be late.
  void kill_an_engine() {
    const auto kill_one = [this] {
      std::filesystem::create_directories(folder_.in("killed"));
      EngineProcess engine(config_, folder_.path());
      return engine.wait_for_disk(GetParam().blocks) && engine.kill();
    };
    config_.disk = folder_.in("killed/blocks");
    for (int tries = 0; !kill_one(); ++tries) {
      ASSERT_LT(tries, 20) << "no engine was killed in mid-run";
      std::filesystem::remove_all(folder_.in("killed"));
    }
  }
  void expect_the_text_of_an_engine_without_tiers() {
    const RunFigures figures = run(config_);
    expect_same_text(figures, config_.model);
    EXPECT_GT(figures.tiers.loaded_tokens, 0U) << "nothing was found on disk";
    EXPECT_LT(figures.scheduler.computed_tokens, reference(config_.model).scheduler.computed_tokens);
    EXPECT_EQ(figures.tiers.missing_tokens, 0U);
  }

  TestFolder folder_;
  EngineConfig config_;
};

TEST_P(KilledEngineTest, TheNextOneGeneratesTheSameText) {
  kill_an_engine();
  std::filesystem::copy(folder_.in("killed"), folder_.in("resharded"), std::filesystem::copy_options::recursive);
  expect_the_text_of_an_engine_without_tiers();

  config_.disk = folder_.in("resharded/blocks");
  config_.ranks = GetParam().later;
  const Result<Resharding> done = reshard(config_.disk, {.grid = config_.ranks});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->wrong, 0U) << "an entry is written after the bytes of its block";
  expect_the_text_of_an_engine_without_tiers();
}

// Sanitizers make the model ten times slower.
INSTANTIATE_TEST_SUITE_P(Engines, KilledEngineTest,
                         CAIRN_SANITIZED
                             ? testing::ValuesIn(std::vector<Killed>{{EngineModel::kGrouped, {2}, {1, 2}, 12}})
                             : testing::ValuesIn(std::vector<Killed>{{EngineModel::kGrouped, {2}, {1, 2}, 12},
                                                                     {EngineModel::kGrouped, {2, 2}, {4}, 25},
                                                                     {EngineModel::kFewHeads, {4}, {1}, 25},
                                                                     {EngineModel::kMla, {2}, {4, 2}, 12}}));

}  // namespace
}  // namespace cairn::engine
