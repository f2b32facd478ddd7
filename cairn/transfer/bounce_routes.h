// BounceRoutes: which plans and executors bring blocks through the ring of a BounceExecutor. A block lies in the ring as it lies
// in the file, so that the file's blocks are written and read in one piece and the other side rearranges them.
//
// Thread safety: any thread.
// Ownership: a BounceExecutor. The executors outlive it; the ring's region is held.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class BounceRoutes {
 public:
  // One of the two copies of each block.
  struct Leg {
    CopyPlanPtr plan;
    TransferExecutor* executor = nullptr;
  };
  struct Route {
    Leg in;   // into the ring
    Leg out;  // out of the ring
  };
  // `block_bytes`: of the largest block; places in the ring are that large, in whole pages.
  BounceRoutes(TransferExecutor& one, TransferExecutor& other, RegionPtr ring, std::uint64_t block_bytes);

  // Valid as long as the plan is: it does not hold the plan's layouts. kInvalidArgument if a block does not fit in a place or
  // no executor makes one of the copies.
  [[nodiscard]] Result<Route> find(const CopyPlan& plan) const;
  // The same, holding the plan. Kept for the next transfer of the plan.
  [[nodiscard]] Result<Route> of(const CopyPlanPtr& plan) CAIRN_EXCLUDES(mutex_);

  // Places in the ring, one for each block. 0 if the ring is too small for one.
  [[nodiscard]] std::uint32_t places() const { return places_; }
  [[nodiscard]] std::uint64_t place_bytes() const { return place_bytes_; }

 private:
  struct Known {
    const CopyPlan* plan = nullptr;
    std::weak_ptr<const CopyPlan> alive;  // expired if another plan may have its address
    Route route;
  };
  [[nodiscard]] Result<Leg> find_leg(CopyPlanPtr plan) const;
  [[nodiscard]] Result<BlockLayoutPtr> ring_layout(const KvShape& shape, const BlockLayout& like) const;

  TransferExecutor& one_;
  TransferExecutor& other_;
  const RegionPtr ring_;
  const std::uint64_t place_bytes_;
  const std::uint32_t places_;
  Mutex mutex_{LockRank::kExecutor};
  std::vector<Known> known_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn
