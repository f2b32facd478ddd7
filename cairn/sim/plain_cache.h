// PlainCache: the cache of a worker without tiers below: a KvManager, of either profile.
#pragma once

#include <memory>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/sim/kv_manager.h"
#include "cairn/sim/worker_cache.h"

namespace cairn::sim {

class PlainCache final : public WorkerCache {
 public:
  explicit PlainCache(std::unique_ptr<KvManager> manager) : manager_(std::move(manager)) {}

  [[nodiscard]] std::size_t process(const MoveBlock& move, Holding& /*holding*/) override {
    const Result<std::size_t> granted = manager_->process(move);
    CAIRN_CHECK(granted.has_value(), "the moves of a sequence are consistent, and it releases only blocks that it has");
    return *granted;
  }
  [[nodiscard]] std::size_t cached_tokens(const ActiveSequence& sequence, const Holding& /*holding*/) const override {
    return manager_->get_prefill_cost(sequence).cached_tokens;
  }
  [[nodiscard]] std::size_t num_active_blocks() const override { return manager_->num_active_blocks(); }
  [[nodiscard]] std::size_t num_resident_blocks() const override {
    return manager_->num_active_blocks() + manager_->num_inactive_blocks();
  }
  [[nodiscard]] const EvictionAges& eviction_ages() const override { return manager_->eviction_ages(); }
  void advance_to(TimePoint now) override { manager_->set_time(now); }
  void check_invariants() const override { manager_->check_invariants(); }

 private:
  std::unique_ptr<KvManager> manager_;
};

}  // namespace cairn::sim
