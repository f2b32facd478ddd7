#include "cairn/transfer/transfer_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>

#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::same_blocks;
using testing::small_plan;

class TransferLedgerTest : public ::testing::Test {
 protected:
  // Callbacks of a transfer named `name` are recorded in log_ and outcomes_.
  Transfer transfer(const std::string& name, std::uint32_t blocks, TimePoint deadline = TimePoint::max()) {
    return {.plan = plan_,
            .blocks = same_blocks(blocks),
            .deadline = deadline,
            .done =
                [this, name](TransferOutcome&& outcome) {
                  log_.push_back(name + " done");
                  outcomes_[name] = std::move(outcome);
                },
            .settled = [this, name] { log_.push_back(name + " settled"); }};
  }
  TransferId accept(Transfer&& given) {
    Result<TransferId> id = ledger_->accept(std::move(given));
    EXPECT_TRUE(id.has_value()) << id.error().to_string();
    return *id;
  }
  std::vector<BlockState> states(const std::string& name) {
    std::vector<BlockState> all;
    for (const BlockOutcome& block : outcomes_.at(name).blocks) {
      all.push_back(block.state);
    }
    return all;
  }
  void run() {
    while (ledger_->run_callbacks()) {
    }
  }

  CopyPlanPtr plan_ = small_plan();
  ManualClock clock_;
  std::vector<std::string> log_;
  std::map<std::string, TransferOutcome> outcomes_;
  std::optional<TransferLedger> ledger_{std::in_place, clock_, 4, TransferLedger::Callbacks::kOnRequest};
};

TEST_F(TransferLedgerTest, CallsDoneThenSettledWhenEveryBlockHasEnded) {
  const TransferId id = accept(transfer("a", 3));
  const auto active = ledger_->try_take();
  ASSERT_NE(active, nullptr);
  EXPECT_EQ(active->id(), id);
  EXPECT_EQ(ledger_->try_take(), nullptr);
  EXPECT_EQ(active->begin_run(0, 3), 3U);
  active->finish(1, {});
  active->finish(0, {});
  EXPECT_FALSE(ledger_->run_callbacks());
  EXPECT_EQ(ledger_->load().transfers, 1U);
  EXPECT_EQ(ledger_->load().blocks, 3U);
  active->finish(2, {});
  EXPECT_THAT(log_, ElementsAre());  // callbacks run on request only
  EXPECT_TRUE(ledger_->run_callbacks());
  EXPECT_THAT(log_, ElementsAre("a done", "a settled"));
  EXPECT_TRUE(outcomes_["a"].all_done());
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kDone, BlockState::kDone));
  EXPECT_FALSE(ledger_->run_callbacks());
  EXPECT_EQ(ledger_->load().transfers, 0U);
  EXPECT_EQ(ledger_->load().blocks, 0U);
}

TEST_F(TransferLedgerTest, HandsOutOldestFirst) {
  const TransferId a = accept(transfer("a", 1));
  const TransferId b = accept(transfer("b", 1));
  const TransferId c = accept(transfer("c", 1));
  ledger_->cancel(b);
  EXPECT_EQ(ledger_->try_take()->id(), a);
  EXPECT_TRUE(ledger_->has_untaken());
  EXPECT_EQ(ledger_->try_take()->id(), c);  // b has ended
  EXPECT_FALSE(ledger_->has_untaken());
  EXPECT_EQ(ledger_->try_take(), nullptr);
  const TransferId d = accept(transfer("d", 1));
  EXPECT_TRUE(ledger_->has_untaken());
  ledger_->cancel(d);
  EXPECT_FALSE(ledger_->has_untaken());
  ledger_->cancel(a);
  ledger_->cancel(c);
  run();
  EXPECT_THAT(log_,
              ElementsAre("b done", "b settled", "d done", "d settled", "a done", "a settled", "c done", "c settled"));
}

TEST_F(TransferLedgerTest, FailuresAreOfTheirBlocksAlone) {
  accept(transfer("a", 4));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 4), 4U);
  active->fail(3, "the disk is on fire");
  active->fail(1, "read 3 of 64 bytes");
  active->finish(0, {});
  active->finish(2, {});
  run();
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kFailed, BlockState::kDone, BlockState::kFailed));
  // The first of them by their order in the transfer, whichever failed first.
  EXPECT_EQ(outcomes_["a"].error, "block 1 of 4 (1 to 1) failed: read 3 of 64 bytes");
}

TEST_F(TransferLedgerTest, MakesChecksumsWithTheBytesOfTheBlockAndItsTag) {
  accept(transfer("a", 1));
  const auto active = ledger_->try_take();
  const BlockSums sums{.products = 77, .words = 99};
  ASSERT_TRUE(active->begin(0));
  active->finish(0, sums);
  run();
  EXPECT_EQ(outcomes_["a"].blocks[0].checksum, finish(sums, 64, active->transfer().blocks[0].tag));
  EXPECT_EQ(outcomes_["a"].blocks[0].sums, sums);
}

TEST_F(TransferLedgerTest, ComparesChecksums) {
  Transfer given = transfer("a", 3);
  given.verify = Verify::kCheck;
  const BlockSums sums{.products = 77, .words = 99};
  for (TransferBlock& block : given.blocks) {
    block.expected = finish(sums, 64, block.tag);
  }
  given.blocks[1].tag.low ^= 1;
  accept(std::move(given));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 3), 3U);
  active->finish(0, sums);
  active->finish(1, sums);
  active->finish(2, {.products = 77, .words = 98});
  run();
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kMismatch, BlockState::kMismatch));
  EXPECT_THAT(outcomes_["a"].error, HasSubstr("block 1 of 3 (1 to 1) mismatch: its checksum is "));
}

TEST_F(TransferLedgerTest, PassesOnWhatAnotherExecutorSaid) {
  accept(transfer("a", 3));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 3), 3U);
  active->pass_on(0, {.checksum = Checksum{7}, .sums = {.products = 1, .words = 2}}, "");
  active->pass_on(2, {.state = BlockState::kExpired}, "too slow");
  active->pass_on(1, {.state = BlockState::kCancelled}, "taken back");
  run();
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kCancelled, BlockState::kExpired));
  EXPECT_EQ(outcomes_["a"].blocks[0].checksum, Checksum{7});
  EXPECT_EQ(outcomes_["a"].error, "block 1 of 3 (1 to 1) cancelled: taken back");
}

TEST_F(TransferLedgerTest, BlocksReportedEarlySettleWhenTheyAreReleased) {
  accept(transfer("a", 3));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 3), 3U);
  const std::vector<BlockOutcome> outcomes = {{.checksum = Checksum{7}}, {.state = BlockState::kFailed}};
  active->report_early(0, outcomes, "rank 1 is gone");
  run();
  EXPECT_THAT(log_, ElementsAre());  // the third has no outcome yet
  active->fail(2, "another matter");
  run();
  EXPECT_THAT(log_, ElementsAre("a done"));
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kFailed, BlockState::kFailed));
  EXPECT_EQ(outcomes_["a"].blocks[0].checksum, Checksum{7});
  EXPECT_EQ(outcomes_["a"].error, "block 1 of 3 (1 to 1) failed: rank 1 is gone");
  EXPECT_EQ(ledger_->load().transfers, 1U);  // its memory may be touched: it keeps its place
  active->release(1, 1);
  run();
  EXPECT_THAT(log_, ElementsAre("a done"));
  active->release(0, 1);
  run();
  EXPECT_THAT(log_, ElementsAre("a done", "a settled"));
  EXPECT_EQ(ledger_->load().transfers, 0U);
}

TEST_F(TransferLedgerTest, ADeadlineKeepsOutcomesReportedEarly) {
  accept(transfer("a", 2, TimePoint(milliseconds(10))));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 2), 2U);
  const std::vector<BlockOutcome> failed = {{.state = BlockState::kFailed}};
  active->report_early(0, failed, "broken");
  clock_.advance(milliseconds(10));
  ledger_->check_deadlines();
  run();
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kFailed, BlockState::kExpired));
  const std::vector<BlockOutcome> done(1);
  active->report_early(1, done, "");  // too late to change anything
  run();
  EXPECT_THAT(log_, ElementsAre("a done"));
  active->release(0, 2);
  run();
  EXPECT_THAT(log_, ElementsAre("a done", "a settled"));
}

TEST_F(TransferLedgerTest, WithoutVerifyingThereIsNoChecksum) {
  Transfer given = transfer("a", 1);
  given.verify = Verify::kOff;
  accept(std::move(given));
  const auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(0));
  active->finish(0, {.products = 1, .words = 2});
  run();
  EXPECT_EQ(outcomes_["a"].blocks[0].checksum, Checksum{});
  EXPECT_EQ(outcomes_["a"].blocks[0].sums, BlockSums{});
}

TEST_F(TransferLedgerTest, RefusesWhatIsWrongAndLeavesItAsItWas) {
  const auto refused = [&](Transfer& given) {
    const Result<TransferId> id = ledger_->accept(std::move(given));
    EXPECT_FALSE(id.has_value());
    EXPECT_EQ(given.blocks.size(), 2U);
    EXPECT_EQ(ledger_->load().transfers, 0U);
    return id.has_value() ? Error{} : id.error();
  };
  Transfer given = transfer("a", 2);
  given.plan = nullptr;
  EXPECT_EQ(refused(given).code, ErrorCode::kInvalidArgument);
  given = transfer("a", 2);
  given.done = nullptr;
  EXPECT_EQ(refused(given).code, ErrorCode::kInvalidArgument);
  given = transfer("a", 2);
  given.blocks[1].pair.source = 64;
  EXPECT_EQ(refused(given).code, ErrorCode::kInvalidArgument);
  given = transfer("a", 2);
  given.blocks[1].pair.destination = 0;
  EXPECT_EQ(refused(given).code, ErrorCode::kInvalidArgument);

  given = transfer("a", 2);
  given.plan = small_plan(8, 2, {.layers = 1});
  given.verify = Verify::kCheck;
  const Error part = refused(given);
  EXPECT_EQ(part.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(part.message, HasSubstr("moves 64 of the 128 bytes"));
  given.verify = Verify::kMake;
  ledger_->cancel(accept(std::move(given)));
  run();
}

TEST_F(TransferLedgerTest, PushesBackWhenFullAndTakesMoreFromDone) {
  for (int i = 0; i < 3; ++i) {
    accept(transfer("x", 1));
  }
  Transfer last = transfer("d", 1);
  bool accepted_inside = false;
  last.done = [&](TransferOutcome&& /*outcome*/) { accepted_inside = ledger_->accept(transfer("e", 1)).has_value(); };
  accept(std::move(last));
  Transfer more = transfer("f", 1);
  const Result<TransferId> refused = ledger_->accept(std::move(more));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("all 4 places"));
  EXPECT_EQ(more.blocks.size(), 1U);

  std::shared_ptr<ActiveTransfer> active;
  for (int i = 0; i < 4; ++i) {
    active = ledger_->try_take();
  }
  ASSERT_TRUE(active->begin(0));
  active->finish(0, {});
  EXPECT_FALSE(ledger_->accept(std::move(more)).has_value());  // its place is free once its callback has run
  ledger_->run_callbacks();
  EXPECT_TRUE(accepted_inside);
  EXPECT_EQ(ledger_->load().transfers, 4U);
}

TEST_F(TransferLedgerTest, CancelLeavesWhatHasBegun) {
  const TransferId id = accept(transfer("a", 3));
  const auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(1));
  ledger_->cancel(id);
  EXPECT_FALSE(active->begin(0));
  EXPECT_EQ(active->begin_run(2, 1), 0U);
  EXPECT_FALSE(ledger_->run_callbacks());
  active->finish(1, {});
  run();
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kCancelled, BlockState::kDone, BlockState::kCancelled));
  EXPECT_THAT(outcomes_["a"].error, HasSubstr("block 0 of 3 (0 to 0) cancelled"));
  ledger_->cancel(id);  // has ended long ago
  ledger_->cancel(TransferId{12345});
  EXPECT_FALSE(ledger_->run_callbacks());
}

TEST_F(TransferLedgerTest, ADeadlineTellsAtOnceAndSettlesWithTheLateCopy) {
  accept(transfer("late", 3, TimePoint(milliseconds(10))));
  accept(transfer("later", 1, TimePoint(milliseconds(20))));
  const auto active = ledger_->try_take();
  EXPECT_EQ(active->begin_run(0, 2), 2U);
  active->finish(0, {});
  clock_.advance(milliseconds(9));
  ledger_->check_deadlines();
  EXPECT_FALSE(ledger_->run_callbacks());
  clock_.advance(milliseconds(1));
  ledger_->check_deadlines();
  run();
  EXPECT_THAT(log_, ElementsAre("late done"));
  EXPECT_THAT(states("late"), ElementsAre(BlockState::kDone, BlockState::kExpired, BlockState::kExpired));
  EXPECT_THAT(outcomes_["late"].error, HasSubstr("block 1 of 3 (1 to 1) expired: the deadline passed during its copy"));
  EXPECT_EQ(ledger_->load().transfers, 2U);  // it may still be written: it keeps its place
  EXPECT_FALSE(active->begin(2));
  active->fail(1, "too late to matter");
  run();
  EXPECT_THAT(log_, ElementsAre("late done", "late settled"));
  EXPECT_EQ(ledger_->load().transfers, 1U);
}

TEST_F(TransferLedgerTest, ADeadlineIsSeenWhenABlockBeginsOrATransferIsTaken) {
  accept(transfer("a", 2, TimePoint(milliseconds(10))));
  accept(transfer("b", 2, TimePoint(milliseconds(10))));
  const auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(0));
  clock_.advance(milliseconds(10));
  EXPECT_FALSE(active->begin(1));
  EXPECT_EQ(ledger_->try_take(), nullptr);
  run();
  EXPECT_THAT(log_, ElementsAre("a done", "b done", "b settled"));
  active->finish(0, {});
  accept(transfer("c", 1, TimePoint(milliseconds(5))));  // its deadline passed before it was accepted
  run();
  EXPECT_THAT(log_, ElementsAre("a done", "b done", "b settled", "a settled", "c done", "c settled"));
  EXPECT_THAT(states("c"), ElementsAre(BlockState::kExpired));
}

TEST_F(TransferLedgerTest, ATransferOfNothingIsDone) {
  accept(transfer("none", 0));
  EXPECT_EQ(ledger_->try_take(), nullptr);
  run();
  EXPECT_THAT(log_, ElementsAre("none done", "none settled"));
  EXPECT_TRUE(outcomes_["none"].all_done());
}

TEST_F(TransferLedgerTest, SettledMayBeLeftOut) {
  Transfer given = transfer("a", 1);
  given.settled = nullptr;
  accept(std::move(given));
  const auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(0));
  active->finish(0, {});
  run();
  EXPECT_THAT(log_, ElementsAre("a done"));
  EXPECT_EQ(ledger_->load().transfers, 0U);
}

TEST_F(TransferLedgerTest, ClosingCancelsWhatHasNotBegun) {
  accept(transfer("a", 2));
  accept(transfer("b", 1));
  auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(0));
  ledger_->close();
  EXPECT_EQ(ledger_->take(), nullptr);
  Transfer more = transfer("c", 1);
  const Result<TransferId> refused = ledger_->accept(std::move(more));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  active->finish(0, {});
  active.reset();
  ledger_.reset();  // and runs the callbacks that are due
  EXPECT_THAT(log_, ElementsAre("b done", "b settled", "a done", "a settled"));
  EXPECT_THAT(states("a"), ElementsAre(BlockState::kDone, BlockState::kCancelled));
}

TEST_F(TransferLedgerTest, CapturesOfCallbacksAreReleasedWithTheCall) {
  const auto held = std::make_shared<int>(1);
  Transfer given = transfer("a", 1);
  given.done = [held](TransferOutcome&& /*outcome*/) {};
  given.settled = [held] {};
  accept(std::move(given));
  const auto active = ledger_->try_take();
  ASSERT_TRUE(active->begin(0));
  active->finish(0, {});
  EXPECT_EQ(held.use_count(), 3);
  run();
  EXPECT_EQ(held.use_count(), 1);
}

using TransferLedgerDeathTest = TransferLedgerTest;

TEST_F(TransferLedgerDeathTest, BlocksEndOnceAndAfterTheyBegan) {
  accept(transfer("a", 2));
  const auto active = ledger_->try_take();
  EXPECT_DEATH(active->finish(0, {}), "a block ends once, after it began");
  ASSERT_TRUE(active->begin(0));
  EXPECT_DEATH((void)active->begin(0), "a block of a transfer begins once");
  active->finish(0, {});
  EXPECT_DEATH(active->fail(0, ""), "a block ends once, after it began");
  const std::vector<BlockOutcome> one(1);
  EXPECT_DEATH(active->report_early(0, one, ""), "report_early.. is called once for a block, after it began");
  EXPECT_DEATH(active->release(0, 1), "a block is released once, after report_early");
  EXPECT_DEATH(ledger_.emplace(clock_, 0, TransferLedger::Callbacks::kOnRequest), "room for at least one");
}

// Random operations against a simple model of the expected callbacks.
class Model {
 public:
  enum class Phase { kWaiting, kBegun, kOver };
  struct Entry {
    std::vector<Phase> phases;
    std::vector<std::optional<BlockState>> states;
    TimePoint deadline;
    bool done = false;
    bool settled = false;
    bool placed = true;
  };
  std::map<std::uint64_t, Entry> entries;
  std::vector<std::string> due;

  void update(std::uint64_t id) {
    Entry& entry = entries.at(id);
    const auto has_state = [](const auto& state) { return state.has_value(); };
    if (!entry.done && std::all_of(entry.states.begin(), entry.states.end(), has_state)) {
      entry.done = true;
      due.push_back(std::to_string(id) + " done");
    }
    const auto is_over = [](Phase phase) { return phase == Phase::kOver; };
    if (entry.done && !entry.settled && std::all_of(entry.phases.begin(), entry.phases.end(), is_over)) {
      entry.settled = true;
      due.push_back(std::to_string(id) + " settled");
    }
  }
  void end_waiting(std::uint64_t id, BlockState state) {
    Entry& entry = entries.at(id);
    for (std::size_t i = 0; i < entry.phases.size(); ++i) {
      if (entry.phases[i] == Phase::kWaiting) {
        entry.phases[i] = Phase::kOver;
        entry.states[i] = state;
      } else if (state == BlockState::kExpired && !entry.states[i].has_value()) {
        entry.states[i] = state;
      }
    }
    update(id);
  }
  void expire(std::uint64_t id, TimePoint now) {
    if (!entries.at(id).done && entries.at(id).deadline <= now) {
      end_waiting(id, BlockState::kExpired);
    }
  }
  std::size_t places() const {
    return static_cast<std::size_t>(
        std::count_if(entries.begin(), entries.end(), [](const auto& each) { return each.second.placed; }));
  }
};

void run_model(std::uint32_t seed, const CopyPlanPtr& plan) {
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ManualClock clock;
  constexpr std::size_t kLimit = 5;
  Model model;
  std::vector<std::string> log;
  std::map<std::uint64_t, TransferOutcome> outcomes;
  std::map<std::uint64_t, std::shared_ptr<ActiveTransfer>> taken;
  std::uint64_t next_take = 1;
  std::uint64_t next_id = 1;
  TransferLedger ledger(clock, kLimit, TransferLedger::Callbacks::kOnRequest);

  const auto step = [&](std::uint32_t what) {
    const std::uint64_t id = next_id == 1 ? 1 : 1 + random() % (next_id - 1);
    switch (what) {
      case 0:
      case 1: {
        const std::uint64_t name = next_id;
        const std::uint32_t blocks = random() % 5;
        const TimePoint deadline =
            random() % 2 == 0 ? TimePoint::max() : clock.now() + TimePoint(static_cast<int>(random() % 20));
        Transfer transfer{.plan = plan,
                          .blocks = same_blocks(blocks),
                          .deadline = deadline,
                          .done =
                              [&, name](TransferOutcome&& outcome) {
                                log.push_back(std::to_string(name) + " done");
                                outcomes[name] = std::move(outcome);
                              },
                          .settled = [&, name] { log.push_back(std::to_string(name) + " settled"); }};
        const Result<TransferId> accepted = ledger.accept(std::move(transfer));
        ASSERT_EQ(accepted.has_value(), model.places() < kLimit);
        if (accepted) {
          ASSERT_EQ(static_cast<std::uint64_t>(*accepted), name);
          ++next_id;
          model.entries[name] = {.phases = std::vector<Model::Phase>(blocks, Model::Phase::kWaiting),
                                 .states = std::vector<std::optional<BlockState>>(blocks),
                                 .deadline = deadline};
          model.update(name);
          model.expire(name, clock.now());
        }
        return;
      }
      case 2:
      case 3: {
        std::uint64_t expected = 0;
        for (; next_take < next_id && expected == 0; ++next_take) {
          model.expire(next_take, clock.now());
          const auto& phases = model.entries.at(next_take).phases;
          if (std::count(phases.begin(), phases.end(), Model::Phase::kWaiting) > 0) {
            expected = next_take;
          }
        }
        const auto active = ledger.try_take();
        ASSERT_EQ(active == nullptr, expected == 0);
        if (active != nullptr) {
          ASSERT_EQ(static_cast<std::uint64_t>(active->id()), expected);
          taken[expected] = active;
        }
        return;
      }
      case 4:
        if (next_id > 1) {
          ledger.cancel(TransferId{id});
          model.end_waiting(id, BlockState::kCancelled);
        }
        return;
      case 5:
        clock.advance(Duration(random() % 4));
        return;
      case 6: {
        ledger.check_deadlines();
        std::vector<std::pair<TimePoint, std::uint64_t>> order;  // the earliest deadline first
        for (const auto& [each, entry] : model.entries) {
          order.emplace_back(entry.deadline, each);
        }
        std::sort(order.begin(), order.end());
        for (const auto& [deadline, each] : order) {
          model.expire(each, clock.now());
        }
        return;
      }
      case 7: {
        ledger.run_callbacks();
        for (const std::string& each : model.due) {
          const std::uint64_t reported = std::stoull(each);
          if (model.entries.at(reported).settled) {
            model.entries.at(reported).placed = false;
          }
        }
        log.erase(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(log.size() - model.due.size()));
        ASSERT_EQ(log, model.due);
        model.due.clear();
        for (const auto& [each, outcome] : outcomes) {
          for (std::size_t i = 0; i < outcome.blocks.size(); ++i) {
            ASSERT_EQ(outcome.blocks[i].state, model.entries.at(each).states[i]) << each << " block " << i;
          }
          ASSERT_EQ(outcome.all_done(),
                    std::all_of(outcome.blocks.begin(), outcome.blocks.end(),
                                [](const auto& block) { return block.state == BlockState::kDone; }));
        }
        return;
      }
      default: {
        const auto found = taken.find(id);
        if (found == taken.end()) {
          return;
        }
        Model::Entry& entry = model.entries.at(id);
        const auto block = static_cast<std::uint32_t>(random() % entry.phases.size());
        if (entry.phases[block] == Model::Phase::kBegun) {
          const bool fails = random() % 4 == 0;
          if (fails) {
            found->second->fail(block, "x");
          } else {
            found->second->finish(block, {});
          }
          entry.phases[block] = Model::Phase::kOver;
          if (!entry.states[block].has_value()) {
            entry.states[block] = fails ? BlockState::kFailed : BlockState::kDone;
          }
          model.update(id);
          return;
        }
        model.expire(id, clock.now());
        const bool may = entry.phases[block] == Model::Phase::kWaiting;
        ASSERT_EQ(found->second->begin(block), may);
        if (may) {
          entry.phases[block] = Model::Phase::kBegun;
        }
        return;
      }
    }
  };
  for (int i = 0; i < 400 && !::testing::Test::HasFatalFailure(); ++i) {
    step(random() % 14);
    ASSERT_EQ(ledger.load().transfers, model.places());
  }
  for (const auto& [id, active] : taken) {
    for (std::uint32_t block = 0; block < model.entries.at(id).phases.size(); ++block) {
      if (model.entries.at(id).phases[block] == Model::Phase::kBegun) {
        active->finish(block, {});
      }
    }
  }
}

TEST(TransferLedgerModelTest, BehavesLikeANaiveOne) {
  const CopyPlanPtr plan = small_plan();
  for (std::uint32_t seed = 1; seed <= 120 && !::testing::Test::HasFatalFailure(); ++seed) {
    run_model(seed, plan);
  }
}

}  // namespace
}  // namespace cairn
