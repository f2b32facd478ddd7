// Random answers, deaths, returns and deadlines, against a model that only remembers the messages of each rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/leader/leader_testing.h"
#include "cairn/leader/leader_transfers.h"

namespace cairn {
namespace {

using testing::rank_plan;

class LeaderTransfersModel {
 public:
  explicit LeaderTransfersModel(std::uint32_t seed)
      : random_(seed), ranks_(1 + below(4)), presence_(ranks_, RankPresence{.is_there = true, .generation = 1}) {}

  void run() {
    for (int step = 0; step < 300 && !::testing::Test::HasFailure(); ++step) {
      act(below(10));
      tell();
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      lose(rank);
      prove(rank);
    }
    tell();
    EXPECT_TRUE(copies_.empty());
    for (const auto& [name, entry] : entries_) {
      EXPECT_TRUE(entry.is_done) << name;
      EXPECT_TRUE(entry.is_settled) << name;
    }
  }

 private:
  enum class Step { kOut, kAnswered, kOver };
  struct Part {
    std::uint32_t generation = 0;
    Step step = Step::kOut;
    bool is_lost = false;  // went before it had ended
    std::vector<BlockState> states = {};
  };
  struct Entry {
    RankTransfer copy;
    std::vector<Part> parts = {};  // empty: nothing was sent
    bool is_done = false;
    bool is_settled = false;
  };

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

  void act(std::uint32_t what) {
    const std::uint32_t rank = below(ranks_);
    switch (what) {
      case 0:
      case 1:
      case 2:
        return begin();
      case 3:
        clock_.advance(Duration(1));
        ledger_.check_deadlines();
        (void)copies_.expired(clock_.now());
        return;
      case 4:
        return below(4) == 0 ? lose(rank) : come_back(rank);
      case 5:
        return prove(rank);
      default:
        return advance(rank);
    }
  }

  void begin() {
    const std::uint64_t name = next_name_++;
    const std::uint32_t blocks = 1 + below(3);
    Transfer transfer{.plan = plan_,
                      .blocks = testing::same_blocks(blocks),
                      .deadline = below(2) == 0 ? TimePoint::max() : clock_.now() + Duration(1 + below(10)),
                      .done = [this, name](TransferOutcome&& outcome) { done(name, outcome); },
                      .settled = [this, name] { settled(name); }};
    if (!ledger_.accept(std::move(transfer))) {
      return;
    }
    entries_[name] = {};
    std::optional<RankTransfer> copy = copies_.begin(ledger_.try_take(), presence_, clock_.now());
    const bool all = std::all_of(presence_.begin(), presence_.end(), [](const auto& each) { return each.is_there; });
    ASSERT_EQ(copy.has_value(), all);
    if (copy) {
      entries_[name].copy = *copy;
      for (const RankPresence& each : presence_) {
        entries_[name].parts.push_back({.generation = each.generation});
      }
    }
  }

  // The rank answers or settles one of its transfers.
  void advance(std::uint32_t rank) {
    std::vector<Entry*> in_hand;
    for (auto& [name, entry] : entries_) {
      if (!entry.parts.empty() && !entry.parts[rank].is_lost && entry.parts[rank].step != Step::kOver) {
        in_hand.push_back(&entry);
      }
    }
    if (in_hand.empty()) {
      return;
    }
    Entry& entry = *in_hand[below(static_cast<std::uint32_t>(in_hand.size()))];
    Part& part = entry.parts[rank];
    if (part.step == Step::kAnswered) {
      part.step = Step::kOver;
      ASSERT_TRUE(copies_.settled(rank, part.generation, entry.copy.id).has_value());
      return;
    }
    RankTransferOutcome answer = testing::all_done(entry.copy, 1 + rank);
    for (BlockState& state : answer.states) {
      state = below(4) == 0 ? static_cast<BlockState>(below(5)) : BlockState::kDone;
    }
    answer.error = "by chance";
    part.step = Step::kAnswered;
    part.states = answer.states;
    ASSERT_TRUE(copies_.answered(rank, part.generation, answer).has_value());
  }

  void lose(std::uint32_t rank) {
    if (!presence_[rank].is_there) {
      return;
    }
    presence_[rank].is_there = false;
    presence_[rank].reason = "lost";
    for (auto& [name, entry] : entries_) {
      if (!entry.parts.empty() && entry.parts[rank].generation == presence_[rank].generation) {
        entry.parts[rank].is_lost = entry.parts[rank].step != Step::kOver;
      }
    }
    (void)copies_.gone(rank, presence_[rank].generation, "lost");
    unproven_.emplace_back(rank, presence_[rank].generation);
  }
  void come_back(std::uint32_t rank) {
    if (!presence_[rank].is_there) {
      presence_[rank] = {.is_there = true, .generation = presence_[rank].generation + 1};
      copies_.next_epoch();
    }
  }
  void prove(std::uint32_t rank) {
    for (const auto& [lost, generation] : unproven_) {
      if (lost != rank) {
        continue;
      }
      for (auto& [name, entry] : entries_) {
        if (!entry.parts.empty() && entry.parts[rank].generation == generation) {
          entry.parts[rank].step = Step::kOver;
        }
      }
      copies_.over(rank, generation);
    }
    std::erase_if(unproven_, [rank](const auto& each) { return each.first == rank; });
  }

  void tell() {
    while (ledger_.run_callbacks()) {
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const auto open = std::count_if(entries_.begin(), entries_.end(), [rank](const auto& each) {
        const auto& parts = each.second.parts;
        return !parts.empty() && parts[rank].step != Step::kOver;
      });
      EXPECT_EQ(copies_.in_flight(rank), open) << "rank " << rank;
    }
  }
  void done(std::uint64_t name, const TransferOutcome& outcome) {
    Entry& entry = entries_.at(name);
    EXPECT_FALSE(entry.is_done) << name;
    entry.is_done = true;
    for (std::size_t block = 0; block < outcome.blocks.size(); ++block) {
      if (outcome.blocks[block].state != BlockState::kDone) {
        continue;
      }
      ASSERT_FALSE(entry.parts.empty());
      for (const Part& part : entry.parts) {
        ASSERT_FALSE(part.states.empty()) << "a block is done only if the rank has reported it";
        EXPECT_EQ(part.states[block], BlockState::kDone);
      }
      BlockSums sums;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        sums += {.products = 1 + rank, .words = 0};
      }
      EXPECT_EQ(outcome.blocks[block].checksum, finish(sums, plan_->whole_block_bytes(), entry.copy.tags[block]));
    }
  }
  void settled(std::uint64_t name) {
    Entry& entry = entries_.at(name);
    EXPECT_TRUE(entry.is_done) << name;
    EXPECT_FALSE(entry.is_settled) << name;
    entry.is_settled = true;
    for (const Part& part : entry.parts) {
      EXPECT_EQ(part.step, Step::kOver) << name << ": a rank may still touch its blocks";
    }
  }

  std::mt19937 random_;
  const std::uint32_t ranks_;
  std::vector<RankPresence> presence_;
  const CopyPlanPtr plan_ = rank_plan(MemoryKind::kDevice, MemoryKind::kPinned);
  ManualClock clock_;
  std::uint64_t next_name_ = 1;
  std::map<std::uint64_t, Entry> entries_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> unproven_;  // ranks and generations that are lost
  LeaderTransfers copies_;
  TransferLedger ledger_{clock_, 16, TransferLedger::Callbacks::kOnRequest};
};

TEST(LeaderTransfersModelTest, NothingIsDoneOrSettledThatIsNot) {
  for (std::uint32_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    LeaderTransfersModel(seed).run();
  }
}

}  // namespace
}  // namespace cairn
