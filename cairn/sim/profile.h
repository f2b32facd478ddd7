// Profile: whether the simulation is sound (kStrict), or answers exactly as the system that it is modelled on (kSeed).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cairn::sim {

enum class Profile : std::uint8_t { kStrict, kSeed };

// "strict", "seed"
[[nodiscard]] constexpr std::string_view to_string(Profile profile) {
  return profile == Profile::kSeed ? "seed" : "strict";
}
[[nodiscard]] constexpr std::optional<Profile> parse_profile(std::string_view name) {
  for (const Profile profile : {Profile::kStrict, Profile::kSeed}) {
    if (name == to_string(profile)) {
      return profile;
    }
  }
  return std::nullopt;
}

}  // namespace cairn::sim
