// OffloadOptions: how blocks of one tier move down to the next.
#pragma once

#include <cstdint>
#include <string_view>

#include "cairn/base/clock.h"

namespace cairn {

enum class OffloadMode : std::uint8_t {
  kAhead,           // while the lower tier has free room every block that is registered; always the next victims
  kOnRegistration,  // every block as it is registered (write-through)
  kOff,             // only what is asked for
};
inline constexpr OffloadMode kAllOffloadModes[] = {OffloadMode::kAhead, OffloadMode::kOnRegistration,
                                                   OffloadMode::kOff};
// "ahead", "write-through", "off"
[[nodiscard]] std::string_view to_string(OffloadMode mode);

struct OffloadOptions {
  OffloadMode mode = OffloadMode::kAhead;
  double low_water = 0.05;      // least share of the upper tier's blocks that is kept free or ready to go; kAhead
  std::uint32_t batch = 64;     // blocks that are copied together
  std::uint32_t in_flight = 4;  // batches at once
  std::uint32_t queue = 4096;   // blocks that may wait; beyond it the least valuable are not copied
  Duration deadline = std::chrono::seconds(10);  // of a copy
  // What is worth copying at all; see evict/admission.h.
  std::uint32_t least_uses = 1;
  std::uint32_t least_blocks = 1;
  std::uint32_t least_priority = 0;
  double least_chance = 0;
  std::uint64_t bytes_per_day = 0;  // 0: any number
};

}  // namespace cairn
