// Random operations on a slot, valid and invalid, against the model.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/connector/slot_model_testing.h"
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using Kind = SlotState::Kind;

Verdict verdict_of(const Status& status) {
  if (status) {
    return Verdict::kOk;
  }
  return is_invalid_state(status) ? Verdict::kInvalidState : Verdict::kInvalidOperation;
}

class Walk {
 public:
  explicit Walk(std::uint64_t seed)
      : random_(seed), prompt_(1 + below(24)), slot_(new_slot(prompt_, kSerial)), model_(prompt_) {}

  void run(std::set<std::pair<Kind, Kind>>& steps_seen) {
    for (int i = 0; i < 150 && !::testing::Test::HasFailure(); ++i) {
      const Kind before = slot_.state().kind();
      const SlotView view(slot_);
      const Verdict verdict = act();
      if (verdict == Verdict::kOk) {
        note_steps(before, steps_seen);
      } else {
        EXPECT_EQ(SlotView(slot_), view) << "refused, and changed";
      }
      compare();
      if (below(3) == 0) {
        take();
      }
    }
    wind_up();
  }

 private:
  static constexpr std::uint64_t kSerial = 42;

  std::size_t below(std::size_t bound) { return random_() % bound; }
  // Mostly the next one; now and then an earlier one.
  std::uint64_t iteration() { return below(12) == 0 && iteration_ > 0 ? iteration_ - 1 : ++iteration_; }
  // Mostly at most `bound`.
  std::size_t about(std::size_t bound) { return below(10) == 0 ? bound + 1 + below(3) : below(bound + 1); }

  Verdict both(const char* what, const Status& status, Verdict expected) {
    what_ = what;
    EXPECT_EQ(verdict_of(status), expected) << what << (status ? "" : status.error().message);
    return expected;
  }

  Verdict act() {
    const std::uint64_t it = iteration_;
    switch (below(19)) {
      case 0:
      case 1:
      case 2: {
        const std::uint64_t now = iteration();
        return both("scheduled", slot_.mark_as_scheduled(now), model_.scheduled(now));
      }
      case 3: {
        const std::uint64_t now = iteration();
        return both("prefilling", slot_.mark_as_prefilling(now), model_.prefilling(now));
      }
      case 4: {
        const std::uint64_t now = iteration();
        return both("decoding", slot_.mark_as_decoding(now), model_.decoding(now));
      }
      case 5: {
        const std::uint64_t now = iteration();
        return both("onboarding", slot_.mark_as_onboarding(now), model_.onboarding(now));
      }
      case 6:
        return both("not scheduled", slot_.mark_as_not_scheduled(it), model_.not_scheduled(it));
      case 7: {
        if (below(3) == 0) {
          return model_.in_step ? in_step_save() : both("preempt", slot_.preempt(it), model_.preempt(it));
        }
        return give_blocks();
      }
      case 8: {
        if (below(6) == 0) {
          return model_.in_step ? in_step_save() : both("finish", slot_.mark_as_finished(it), model_.finish(it));
        }
        return give_blocks();
      }
      case 9:
      case 10: {
        const std::size_t local = below(3) == 0 ? below(model_.size() + 2) : model_.computed();
        const std::size_t wanted = model_.wanted(local);
        EXPECT_EQ(slot_.keys_to_match(local).size(), wanted);
        const std::size_t found = about(wanted);
        return both("acquire", slot_.acquire_all_local_matches(local, found), model_.acquire(local, found));
      }
      case 11: {
        const std::vector<Token> more = tokens(below(6), static_cast<Token>(random_()));
        return both("append", slot_.append_tokens(more), model_.append(more, false));
      }
      case 12: {
        const std::vector<Token> more = tokens(below(7), static_cast<Token>(random_()));
        return both("draft", slot_.append_draft_tokens(more), model_.append(more, true));
      }
      case 13: {
        const std::size_t accepted = about(model_.draft_tokens());
        return both("settle", slot_.settle_draft_tokens(accepted), model_.settle(accepted));
      }
      case 14: {
        const std::size_t room = std::min(model_.size(), model_.blocks.size() * kBlockSize);
        const std::size_t count = about(room > model_.computed() ? room - model_.computed() : 0);
        return both("advance", slot_.advance_computed_position(count), model_.advance(count));
      }
      case 15: {
        if (below(2) == 0) {
          const std::size_t count = about(std::min<std::size_t>(model_.computed(), 6));
          return both("retreat", slot_.retreat_computed_position(count), model_.retreat(count));
        }
        return copy_done();
      }
      case 16:
      case 17:
        return in_step_save();
      default:
        return copy_done();
    }
  }

  // As the scheduler's side does: offered in an iteration that runs, settled with what is computed, and before a preemption
  // or the end.
  void settle_in_step_save() {
    EXPECT_EQ(slot_.has_in_step_save(), model_.in_step.has_value());
    if (model_.in_step) {
      take();  // one that was not taken: SlotSaveTest
      what_ = "settle in step";
      EXPECT_EQ(slot_.settle_in_step_save(slot_.computed_tokens()).confirmed, model_.settle_in_step(model_.computed()));
    }
  }
  Verdict in_step_save() {
    what_ = "in step";
    if (model_.in_step) {
      settle_in_step_save();
    } else if (model_.state == Kind::kPrefilling || model_.state == Kind::kDecoding) {
      what_ = "offer in step";
      const std::size_t upto = model_.computed() + below(12);
      const std::size_t least = 1 + below(2);
      EXPECT_EQ(slot_.offer_in_step_save(upto, least), model_.offer_in_step(upto, least));
    }
    EXPECT_EQ(slot_.has_in_step_save(), model_.in_step.has_value());
    return Verdict::kOk;
  }

  Verdict give_blocks() {
    const std::vector<BlockId> more = device_blocks(below(4), static_cast<std::uint32_t>(random_() % 100000));
    return both("blocks", slot_.append_mutable_device_blocks(more), model_.give_blocks(more));
  }

  Verdict copy_done() {
    // One that is in flight, or any number.
    std::uint32_t number = static_cast<std::uint32_t>(below(model_.next_copy + 1));
    bool is_load = below(2) == 0;
    std::size_t arrived = below(5);
    if (!model_.copies.empty() && below(8) != 0) {
      const auto copy = std::next(model_.copies.begin(), static_cast<std::ptrdiff_t>(below(model_.copies.size())));
      number = copy->first;
      is_load = copy->second.is_load;
      arrived = below(3) == 0 ? about(copy->second.block_ids.size()) : copy->second.block_ids.size();
    }
    const OperationId id{kSerial, number};
    return both("done", is_load ? slot_.onboard_done(id, arrived) : slot_.offload_done(id),
                model_.copy_done(number, is_load, arrived));
  }

  // The slot returns the operations that the model has not seen taken, in order.
  void take() {
    const auto numbers_of = [](const std::vector<OperationPtr>& operations) {
      std::vector<std::uint32_t> numbers;
      for (const OperationPtr& operation : operations) {
        numbers.push_back(operation->id.number);
      }
      return numbers;
    };
    const SlotOperations operations = take_operations(slot_);
    for (const OperationPtr& operation : operations.start) {
      expect_copy(*operation);
    }
    std::vector<std::uint32_t> expected;
    for (auto& [number, copy] : model_.copies) {
      if (!std::exchange(copy.is_taken, true)) {
        expected.push_back(number);
      }
    }
    EXPECT_EQ(numbers_of(operations.start), expected);
    EXPECT_EQ(numbers_of(operations.fence), std::exchange(model_.fences, {}));
    EXPECT_EQ(numbers_of(operations.cancel), std::exchange(model_.cancels, {}));
  }

  void expect_copy(const Operation& operation) {
    EXPECT_EQ(operation.id.slot, kSerial);
    ASSERT_TRUE(model_.copies.contains(operation.id.number));
    const ModelCopy& copy = model_.copies[operation.id.number];
    EXPECT_EQ(copy.is_load, operation.is_load);
    EXPECT_EQ(operation.first_block, copy.first_block);
    EXPECT_EQ(operation.block_ids, copy.block_ids);
    // Verified tokens are never taken back: their keys follow from the present tokens.
    const TokenBlockSequence fresh = *TokenBlockSequence::create(model_.content(), kBlockSize);
    ASSERT_LE(copy.first_block + copy.block_ids.size(), fresh.block_count());
    EXPECT_TRUE(std::ranges::equal(operation.keys, fresh.keys().subspan(copy.first_block, copy.block_ids.size())));
  }

  void compare() {
    EXPECT_EQ(slot_.state().kind(), model_.state) << what_;
    EXPECT_EQ(slot_.computed_tokens(), model_.computed()) << what_;
    EXPECT_EQ(slot_.operations_in_flight(), model_.copies.size()) << what_;
    EXPECT_TRUE(std::ranges::equal(slot_.device_blocks(), model_.blocks)) << what_;
    EXPECT_TRUE(std::ranges::equal(slot_.sequence().tokens(), model_.content())) << what_;
  }

  void note_steps(Kind before, std::set<std::pair<Kind, Kind>>& steps_seen) {
    const Kind after = slot_.state().kind();
    const std::string_view what = what_;
    const bool is_step = before != after || what == "scheduled" || what == "not scheduled" ||
                         (what == "acquire" && after == Kind::kOnboardStaged);
    if (is_step) {
      EXPECT_TRUE(is_legal(before, after)) << what_;
      steps_seen.emplace(before, after);
    }
  }

  // An abort and the end of all copies leave nothing, whatever happened before.
  void wind_up() {
    settle_in_step_save();
    if (!model_.is_over()) {
      EXPECT_EQ(both("finish", slot_.mark_as_finished(iteration_), model_.finish(iteration_)), Verdict::kOk);
    }
    take();
    while (!model_.copies.empty() && !::testing::Test::HasFailure()) {
      EXPECT_EQ(slot_.state(), SlotState::finishing());
      const auto copy = model_.copies.begin();
      const OperationId id{kSerial, copy->first};
      const bool is_load = copy->second.is_load;
      both("done", is_load ? slot_.onboard_done(id, 0) : slot_.offload_done(id),
           model_.copy_done(id.number, is_load, 0));
    }
    compare();
    EXPECT_EQ(slot_.state(), SlotState::finished());
    EXPECT_EQ(slot_.num_device_blocks_allocated(), 0);
  }

  std::mt19937_64 random_;
  std::size_t prompt_;
  ExternallyManagedDeviceSlot slot_;
  SlotModel model_;
  std::uint64_t iteration_ = 0;
  const char* what_ = "";
};

TEST(SlotModelTest, RandomOperationsDoWhatTheModelDoes) {
  std::set<std::pair<Kind, Kind>> steps_seen;
  for (std::uint64_t seed = 0; seed < 1500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    Walk(seed).run(steps_seen);
  }
  for (const SlotTransition& step : kSlotTransitions) {
    EXPECT_TRUE(steps_seen.contains({step.from, step.to})) << to_string(step.from) << " to " << to_string(step.to);
  }
  EXPECT_EQ(steps_seen.size(), kSlotTransitions.size());
}

}  // namespace
}  // namespace cairn
