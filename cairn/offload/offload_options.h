// OffloadOptions: how blocks of one tier move down to the next.
#pragma once

#include <cstdint>
#include <string_view>

#include "cairn/base/clock.h"

namespace cairn {

enum class OffloadMode : std::uint8_t {
  kAhead,           // the next victims; and every block that is registered, while the lower tier has free blocks
  kOnRegistration,  // every block as it is registered (write-through)
  kOff,             // only what is requested
};
inline constexpr OffloadMode kAllOffloadModes[] = {OffloadMode::kAhead, OffloadMode::kOnRegistration,
                                                   OffloadMode::kOff};
// "ahead", "write-through", "off"
[[nodiscard]] std::string_view to_string(OffloadMode mode);

struct OffloadOptions {
  OffloadMode mode = OffloadMode::kAhead;
  double low_water = 0.05;   // kAhead: least share of the upper tier's blocks that is kept free or ready to be evicted
  std::uint32_t batch = 64;  // blocks in one transfer
  std::uint32_t in_flight = 4;                   // transfers at once
  std::uint32_t queue = 4096;                    // pending blocks; beyond it the least valuable are not copied
  Duration deadline = std::chrono::seconds(10);  // of a transfer
  // What is worth copying at all; see evict/admission.h.
  std::uint32_t least_uses = 1;
  std::uint32_t least_blocks = 1;
  std::uint32_t least_priority = 0;
  double least_chance = 0;
  std::uint64_t bytes_per_day = 0;  // 0 for no limit
};

}  // namespace cairn
