// EngineOptions: the size and the limits of one simulated worker.
#pragma once

#include <cstdint>

#include "cairn/evict/policy_kind.h"
#include "cairn/sim/cost_model.h"
#include "cairn/sim/profile.h"

namespace cairn::sim {

struct EngineOptions {
  std::uint32_t blocks = 16'384;
  std::uint32_t block_size = 64;
  PolicyKind eviction = PolicyKind::kLineageTick;
  Profile profile = Profile::kStrict;
  std::uint32_t max_num_seqs = 256;              // requests that run at the same time
  std::uint32_t max_num_batched_tokens = 8'192;  // in one pass
  bool chunked_prefill = true;                   // if false, a prompt waits until it fits into one pass
  bool prefix_caching = true;
  CostModel costs = CostModel::polynomial();
};

}  // namespace cairn::sim
