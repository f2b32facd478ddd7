#include "cairn/connector/slot_state.h"

#include "cairn/base/str_cat.h"

namespace cairn {

std::string_view to_string(SlotState::Kind kind) {
  constexpr std::array<std::string_view, SlotState::kKinds> kNames = {
      "Initialized", "NotScheduled", "OnboardStaged", "Onboarding", "Prefilling", "Decoding", "Finishing", "Finished"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string SlotState::to_string() const {
  const std::string_view name = cairn::to_string(kind_);
  const bool has_number = kind_ == Kind::kOnboardStaged || kind_ == Kind::kOnboarding;
  return has_number ? str_cat(name, '(', number_, ')') : std::string(name);
}

}  // namespace cairn
