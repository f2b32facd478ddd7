// SlotState: where a request stands between the engine's scheduler and Cairn, and which steps lead on from there.
//
// Does:     a closed value: one of eight kinds, two of which carry a number. kSlotTransitions is every legal step and the
//           only place that says so; docs/connector.md shows the same table.
// Threads:  plain values and constants.
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
    kInitialized,    // known, never scheduled
    kNotScheduled,   // has no place in the present iteration: passed over, preempted, or loaded and waiting
    kOnboardStaged,  // tiers have blocks of it; loading has not begun
    kOnboarding,     // its blocks are being loaded
    kPrefilling,     // computes tokens that were known when it (re)started
    kDecoding,       // computes tokens that it makes
    kFinishing,      // over for the engine; copies still use its device blocks
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
  // How many tokens loading would bring; only of OnboardStaged.
  [[nodiscard]] constexpr std::optional<std::size_t> staged_tokens() const {
    return kind_ == Kind::kOnboardStaged ? std::optional<std::size_t>(number_) : std::nullopt;
  }
  // When loading began; only of Onboarding.
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
      {kNotScheduled, kFinishing, "finished or aborted, copies are under way"},
      {kNotScheduled, kFinished, "finished or aborted"},
      {kOnboardStaged, kOnboardStaged, "matched again"},
      {kOnboardStaged, kNotScheduled, "the match is gone; passed over; preempted"},
      {kOnboardStaged, kOnboarding, "scheduled: the load is given out"},
      {kOnboardStaged, kPrefilling, "scheduled to compute instead of loading"},
      {kOnboardStaged, kFinishing, "aborted, copies from before a preemption are under way"},
      {kOnboardStaged, kFinished, "aborted"},
      {kOnboarding, kNotScheduled, "the load is over: all of it, a part or nothing came"},
      {kOnboarding, kFinishing, "aborted, the load or another copy is under way"},
      {kOnboarding, kFinished, "aborted before anybody took the load"},
      {kPrefilling, kPrefilling, "scheduled for the next chunk"},
      {kPrefilling, kDecoding, "scheduled, with the prompt computed"},
      {kPrefilling, kNotScheduled, "passed over; preempted"},
      {kPrefilling, kFinishing, "finished or aborted, copies are under way"},
      {kPrefilling, kFinished, "finished or aborted"},
      {kDecoding, kDecoding, "scheduled for the next tokens"},
      {kDecoding, kNotScheduled, "passed over; preempted"},
      {kDecoding, kFinishing, "finished or aborted, copies are under way"},
      {kDecoding, kFinished, "finished or aborted"},
      {kFinishing, kFinished, "the last copy is proven over"},
  });
}();

[[nodiscard]] constexpr bool is_legal(SlotState::Kind from, SlotState::Kind to) {
  // One bit for each step, in one word: nothing is read to look it up.
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
