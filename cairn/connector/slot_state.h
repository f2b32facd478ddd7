// SlotState: where a request stands between the engine's scheduler and Cairn, and which steps lead on from there.
//
// One of eight kinds, two of which carry a number. kSlotTransitions lists every legal step; docs/connector.md shows the same
// table.
//
// Thread safety: plain values and constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn {

class SlotState {
 public:
  enum class Kind : std::uint8_t {
    kInitialized,    // added, never scheduled
    kNotScheduled,   // not in the current iteration: passed over, preempted, or loaded and waiting
    kOnboardStaged,  // tiers have blocks of it; its load has not started
    kOnboarding,     // its load is in flight
    kPrefilling,     // computes tokens that were known when it started or was resumed
    kDecoding,       // computes tokens that it generated
    kFinishing,      // over for the engine; operations still use its device blocks
    kFinished,       // over, and nothing touches its device blocks
  };
  static constexpr std::size_t kKinds = 8;

  [[nodiscard]] static constexpr SlotState initialized() { return {Kind::kInitialized, 0}; }
  [[nodiscard]] static constexpr SlotState not_scheduled() { return {Kind::kNotScheduled, 0}; }
  [[nodiscard]] static constexpr SlotState onboard_staged(std::size_t tokens) { return {Kind::kOnboardStaged, tokens}; }
  [[nodiscard]] static constexpr SlotState onboarding(std::uint64_t iteration) {
    return {Kind::kOnboarding, iteration};
  }
  [[nodiscard]] static constexpr SlotState prefilling() { return {Kind::kPrefilling, 0}; }
  [[nodiscard]] static constexpr SlotState decoding() { return {Kind::kDecoding, 0}; }
  [[nodiscard]] static constexpr SlotState finishing() { return {Kind::kFinishing, 0}; }
  [[nodiscard]] static constexpr SlotState finished() { return {Kind::kFinished, 0}; }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  // Tokens that can be loaded; only of OnboardStaged.
  [[nodiscard]] constexpr std::optional<std::size_t> staged_tokens() const {
    return kind_ == Kind::kOnboardStaged ? std::optional<std::size_t>(number_) : std::nullopt;
  }
  // The iteration that started the load; only of Onboarding.
  [[nodiscard]] constexpr std::optional<std::uint64_t> onboarding_iteration() const {
    return kind_ == Kind::kOnboarding ? std::optional<std::uint64_t>(number_) : std::nullopt;
  }
  // "Prefilling", "OnboardStaged(32)", "Onboarding(7)"
  [[nodiscard]] std::string to_string() const;

  friend constexpr bool operator==(const SlotState&, const SlotState&) = default;

 private:
  constexpr SlotState(Kind kind, std::uint64_t number) : kind_(kind), number_(number) {}

  Kind kind_;
  std::uint64_t number_;
};

// "Initialized", "NotScheduled" and so on
[[nodiscard]] std::string_view to_string(SlotState::Kind kind);

struct SlotTransition {
  SlotState::Kind from;
  SlotState::Kind to;
  std::string_view when;
};

inline constexpr auto kSlotTransitions = [] {
  using enum SlotState::Kind;
  return std::to_array<SlotTransition>({
      {kInitialized, kOnboardStaged, "tiers have blocks of the prompt"},
      {kInitialized, kPrefilling, "scheduled"},
      {kInitialized, kFinished, "aborted"},
      {kNotScheduled, kNotScheduled, "passed over again; preempted meanwhile"},
      {kNotScheduled, kOnboardStaged, "tiers have blocks: after preemption, or between chunks"},
      {kNotScheduled, kPrefilling, "scheduled, with known tokens left to compute"},
      {kNotScheduled, kDecoding, "scheduled, with all of them computed"},
      {kNotScheduled, kFinishing, "finished or aborted, operations are in flight"},
      {kNotScheduled, kFinished, "finished or aborted"},
      {kOnboardStaged, kOnboardStaged, "matched again"},
      {kOnboardStaged, kNotScheduled, "the match is gone; passed over; preempted"},
      {kOnboardStaged, kOnboarding, "scheduled: the load starts"},
      {kOnboardStaged, kPrefilling, "scheduled to compute instead of loading"},
      {kOnboardStaged, kFinishing, "aborted, saves from before a preemption are in flight"},
      {kOnboardStaged, kFinished, "aborted"},
      {kOnboarding, kNotScheduled, "the load is over: all, some or none of its blocks were loaded"},
      {kOnboarding, kFinishing, "aborted, the load or another operation is in flight"},
      {kOnboarding, kFinished, "aborted before the load was taken"},
      {kPrefilling, kPrefilling, "scheduled for the next chunk"},
      {kPrefilling, kDecoding, "scheduled, with the prompt computed"},
      {kPrefilling, kNotScheduled, "passed over; preempted"},
      {kPrefilling, kFinishing, "finished or aborted, operations are in flight"},
      {kPrefilling, kFinished, "finished or aborted"},
      {kDecoding, kDecoding, "scheduled for the next tokens"},
      {kDecoding, kNotScheduled, "passed over; preempted"},
      {kDecoding, kFinishing, "finished or aborted, operations are in flight"},
      {kDecoding, kFinished, "finished or aborted"},
      {kFinishing, kFinished, "the last operation is over"},
  });
}();

[[nodiscard]] constexpr bool is_legal(SlotState::Kind from, SlotState::Kind to) {
  // One bit for each step, in one word: the check reads no memory.
  constexpr auto kPlaceOf = [](SlotState::Kind before, SlotState::Kind after) {
    return static_cast<unsigned>(before) * SlotState::kKinds + static_cast<unsigned>(after);
  };
  constexpr std::uint64_t kLegal = [kPlaceOf] {
    std::uint64_t bits = 0;
    for (const SlotTransition& step : kSlotTransitions) {
      bits |= std::uint64_t{1} << kPlaceOf(step.from, step.to);
    }
    return bits;
  }();
  return ((kLegal >> kPlaceOf(from, to)) & 1U) != 0;
}

}  // namespace cairn
