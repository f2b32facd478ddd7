// BlockPast: how requests used a block, as one eviction policy tells another when the block moves between their pools.
#pragma once

#include <cstdint>

namespace cairn {

struct BlockPast {
  std::uint64_t last_use = 0;      // nanoseconds of the pools' clock; 0: nothing is known
  std::uint16_t return_class = 0;  // ReturnModel::Class
  std::int16_t gap = 0;            // ReturnModel::LogGap
  std::uint8_t uses = 0;
  bool is_in_use = false;  // by the request that used it last

  friend bool operator==(const BlockPast&, const BlockPast&) = default;
};

}  // namespace cairn
