#include "cairn/events/snapshot.h"

#include "cairn/events/residency_walk.h"
#include "cairn/pool/block_pool.h"

namespace cairn {

Result<Snapshot> take_snapshot(const EventLog& log, std::span<const BlockPool* const> pools) {
  std::vector<internal::ResidentSource> sources;
  sources.reserve(pools.size());
  for (const BlockPool* pool : pools) {
    sources.push_back({.tier = pool->tier(),
                       .capacity = pool->capacity(),
                       .list = [pool](std::uint32_t first, std::uint32_t slots, std::vector<ResidentBlock>& out) {
                         return pool->list_resident(first, slots, out);
                       }});
  }
  return internal::walk_residents(log, sources);
}

}  // namespace cairn
