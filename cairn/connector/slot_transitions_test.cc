// Every pair of states: in the table, in the document, and on slots.
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using Kind = SlotState::Kind;

TEST(SlotTransitionsTest, ThePairsOfTheTableAreLegalAndNoOther) {
  std::set<std::pair<Kind, Kind>> pairs;
  for (const SlotTransition& step : kSlotTransitions) {
    EXPECT_TRUE(pairs.emplace(step.from, step.to).second) << "twice: " << to_string(step.from);
    EXPECT_FALSE(step.when.empty());
  }
  for (const Kind from : kAllKinds) {
    for (const Kind to : kAllKinds) {
      EXPECT_EQ(is_legal(from, to), pairs.contains({from, to})) << to_string(from) << " " << to_string(to);
    }
  }
}

TEST(SlotTransitionsTest, NothingLeadsBackToTheBeginningNorOutOfTheEnd) {
  for (const Kind kind : kAllKinds) {
    EXPECT_FALSE(is_legal(kind, Kind::kInitialized));
    EXPECT_FALSE(is_legal(Kind::kFinished, kind));
    EXPECT_EQ(is_legal(kind, Kind::kFinished), kind != Kind::kFinished) << "an abort is always possible";
  }
}

TEST(SlotTransitionsTest, TheDocumentHasTheTable) {
  std::string table = "| from | to | when |\n|---|---|---|\n";
  for (const SlotTransition& step : kSlotTransitions) {
    table += str_cat("| ", to_string(step.from), " | ", to_string(step.to), " | ", step.when, " |\n");
  }
  std::ifstream file(CAIRN_DOCS "/connector.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_NE(text.find("\n\n" + table + "\n"), std::string::npos)
      << "docs/connector.md is stale: its table should be\n\n"
      << table;
}

// A call of a slot that requests a state. Finishing and Finished have their own test; no call requests Initialized.
struct Ask {
  Kind to;
  std::function<Status(ExternallyManagedDeviceSlot&)> ask;
};

std::vector<Ask> asks() {
  return {
      {Kind::kNotScheduled, [](auto& slot) { return slot.mark_as_not_scheduled(9); }},
      {Kind::kNotScheduled, [](auto& slot) { return slot.preempt(9); }},
      {Kind::kOnboardStaged, [](auto& slot) { return slot.acquire_all_local_matches(slot.computed_tokens(), 1); }},
      {Kind::kOnboarding, [](auto& slot) { return slot.mark_as_onboarding(9); }},
      {Kind::kPrefilling, [](auto& slot) { return slot.mark_as_prefilling(9); }},
      {Kind::kDecoding, [](auto& slot) { return slot.mark_as_decoding(9); }},
  };
}

TEST(SlotTransitionsTest, EveryPairOnASlotIsTakenOrRefusedWithBothStatesAndNothingChanged) {
  int refused = 0;
  for (const Kind from : kAllKinds) {
    for (const Ask& ask : asks()) {
      SCOPED_TRACE(str_cat(to_string(from), " to ", to_string(ask.to)));
      ExternallyManagedDeviceSlot slot = new_slot(16);
      ASSERT_NO_FATAL_FAILURE(bring_to(from, slot));
      ASSERT_EQ(slot.state().kind(), from);
      const SlotView before(slot);
      const Status status = ask.ask(slot);
      if (status) {
        EXPECT_TRUE(is_legal(from, ask.to));
        EXPECT_EQ(slot.state().kind(), ask.to);
        continue;
      }
      EXPECT_EQ(SlotView(slot), before);
      EXPECT_TRUE(take_operations(slot).empty());
      EXPECT_EQ(is_invalid_state(status), !is_legal(from, ask.to));
      if (is_invalid_state(status)) {
        const std::string& message = status.error().message;
        EXPECT_TRUE(message.starts_with(str_cat("a slot cannot go from ", before.state.to_string(), " to ")))
            << message;
        EXPECT_NE(message.find(to_string(ask.to)), std::string::npos) << message;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(SlotTransitionsTest, FinishingIsForEveryStateThatIsNotFinishedYet) {
  for (const Kind from : kAllKinds) {
    SCOPED_TRACE(to_string(from));
    ExternallyManagedDeviceSlot slot = new_slot(16);
    ASSERT_NO_FATAL_FAILURE(bring_to(from, slot));
    const SlotView before(slot);
    const Status status = slot.mark_as_finished(9);
    if (from == Kind::kFinishing || from == Kind::kFinished) {
      ASSERT_TRUE(is_invalid_state(status));
      EXPECT_EQ(SlotView(slot), before);
      EXPECT_NE(status.error().message.find(before.state.to_string()), std::string::npos) << status.error().message;
      continue;
    }
    CAIRN_SLOT_OK(status);
    EXPECT_EQ(slot.state().kind(), from == Kind::kOnboarding ? Kind::kFinishing : Kind::kFinished);
  }
}

TEST(SlotTransitionsTest, StatesSayTheirNumbers) {
  EXPECT_EQ(SlotState::prefilling().to_string(), "Prefilling");
  EXPECT_EQ(SlotState::onboard_staged(32).to_string(), "OnboardStaged(32)");
  EXPECT_EQ(SlotState::onboard_staged(8).staged_tokens(), 8);
  EXPECT_EQ(SlotState::onboarding(3).onboarding_iteration(), 3);
  EXPECT_EQ(SlotState::onboarding(3).staged_tokens(), std::nullopt);
  EXPECT_EQ(SlotState::onboard_staged(8).onboarding_iteration(), std::nullopt);
  EXPECT_NE(SlotState::onboard_staged(8), SlotState::onboard_staged(4));
}

}  // namespace
}  // namespace cairn
