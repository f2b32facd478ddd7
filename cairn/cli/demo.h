// `cairn demo`: sends a small built-in workload of chats with shared prefixes through a block pool, and prints hits, evictions
// and events as a table.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "cairn/base/result.h"
#include "cairn/evict/retention.h"

namespace cairn::cli {

struct DemoOptions {
  std::uint32_t chats = 24;
  std::uint32_t turns = 6;
  std::uint32_t system_prompts = 3;  // each chat begins with one of them
  std::uint32_t in_flight = 4;       // requests that hold their blocks at the same time
  std::uint32_t blocks = 512;
  std::uint32_t block_size = 16;
  PolicyKind policy = PolicyKind::kLineageTick;
  std::uint64_t seed = 1;
  bool json = false;
};

// Writes the table, or one JSON object, to `out` while it runs. Fails if an option is 0, if the pool is too small for the
// requests in flight, or if a subscriber of the events disagrees with the pool.
[[nodiscard]] Status run_demo(const DemoOptions& options, std::ostream& out);

}  // namespace cairn::cli
