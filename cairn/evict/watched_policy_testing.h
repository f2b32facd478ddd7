// Watched: checks the contract of a policy at every call. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cairn/evict/counting_new_testing.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {

// It holds what it should, and allocates nothing.
class Watched {
 public:
  Watched(Asked asked, const FakeBlocks& fake) : fake_(fake), policy_(fake.make(asked)) {}

  void insert(std::span<const BlockId> block_ids) {
    quietly([&] { policy_->insert(block_ids); });
    held_.insert(block_ids.begin(), block_ids.end());
    check(block_ids);
  }
  void remove(std::span<const BlockId> block_ids) {
    quietly([&] { policy_->remove(block_ids); });
    for (const BlockId block_id : block_ids) {
      held_.erase(block_id);
    }
    check(block_ids);
  }
  void forget(BlockId block_id) {
    quietly([&] { policy_->forget(block_id); });
    check({&block_id, 1});
  }
  BlockId evict(ClassRange classes, const Veto& veto) {
    BlockId victim = kNoBlock;
    quietly([&] { victim = policy_->evict(classes, veto); });
    if (victim != kNoBlock) {
      EXPECT_EQ(held_.erase(victim), 1U) << "evicted what it did not hold";
      EXPECT_GE(fake_.class_of(victim), classes.first);
      EXPECT_LT(fake_.class_of(victim), classes.last);
      EXPECT_FALSE(veto && veto(victim));
      check({&victim, 1});
    }
    victims_.push_back(victim);
    return victim;
  }

  [[nodiscard]] bool holds(BlockId block_id) const { return held_.contains(block_id); }
  [[nodiscard]] const std::vector<BlockId>& victims() const { return victims_; }
  [[nodiscard]] std::vector<BlockId> held() const { return {held_.begin(), held_.end()}; }
  [[nodiscard]] EvictionPolicy& policy() { return *policy_; }

 private:
  template <typename Call>
  void quietly(Call call) {
    const std::uint64_t before = allocation_count();
    call();
    EXPECT_EQ(allocation_count(), before) << "allocated";
    EXPECT_EQ(policy_->bytes(), bytes_);
  }
  void check(std::span<const BlockId> touched) {
    EXPECT_EQ(policy_->size(), held_.size());
    for (const BlockId block_id : touched) {
      EXPECT_EQ(policy_->contains(block_id), held_.contains(block_id)) << "block " << index_of(block_id);
    }
  }

  const FakeBlocks& fake_;
  std::unique_ptr<EvictionPolicy> policy_;
  const std::size_t bytes_ = policy_->bytes();
  std::set<BlockId> held_;
  std::vector<BlockId> victims_;
};

}  // namespace cairn
