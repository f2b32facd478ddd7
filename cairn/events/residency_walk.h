// The walk behind take_snapshot, over anything that can list its residents and tells a log of every change. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event_log.h"
#include "cairn/events/snapshot.h"
#include "cairn/pool/pool_observer.h"

namespace cairn::internal {

// A pool, as the walk sees it.
struct ResidentSource {
  CacheLevel tier = CacheLevel::kG1;
  std::uint32_t capacity = 0;
  // BlockPool::list_resident.
  std::function<std::uint32_t(std::uint32_t first, std::uint32_t slots, std::vector<ResidentBlock>& out)> list;
};

// As take_snapshot.
[[nodiscard]] Result<Snapshot> walk_residents(const EventLog& log, std::span<const ResidentSource> sources);

}  // namespace cairn::internal
