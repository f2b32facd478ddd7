// Watched: a policy that is held to its contract at every call. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cairn/evict/counting_new.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_slots.h"

namespace cairn {

// It holds what it should, and allocates nothing.
class Watched {
 public:
  Watched(Asked asked, const FakeSlots& fake) : fake_(fake), policy_(fake.make(asked)) {}

  void insert(std::span<const SlotId> slots) {
    quietly([&] { policy_->insert(slots); });
    held_.insert(slots.begin(), slots.end());
    check(slots);
  }
  void remove(std::span<const SlotId> slots) {
    quietly([&] { policy_->remove(slots); });
    for (const SlotId slot : slots) {
      held_.erase(slot);
    }
    check(slots);
  }
  void forget(SlotId slot) {
    quietly([&] { policy_->forget(slot); });
    check({&slot, 1});
  }
  SlotId evict(ClassRange classes, const Veto& veto) {
    SlotId victim = kNoSlot;
    quietly([&] { victim = policy_->evict(classes, veto); });
    if (victim != kNoSlot) {
      EXPECT_EQ(held_.erase(victim), 1U) << "evicted what it did not hold";
      EXPECT_GE(fake_.class_of(victim), classes.first);
      EXPECT_LT(fake_.class_of(victim), classes.last);
      EXPECT_FALSE(veto && veto(victim));
      check({&victim, 1});
    }
    victims_.push_back(victim);
    return victim;
  }

  [[nodiscard]] bool holds(SlotId slot) const { return held_.contains(slot); }
  [[nodiscard]] const std::vector<SlotId>& victims() const { return victims_; }
  [[nodiscard]] std::vector<SlotId> held() const { return {held_.begin(), held_.end()}; }
  [[nodiscard]] EvictionPolicy& policy() { return *policy_; }

 private:
  template <typename Call>
  void quietly(Call call) {
    const std::uint64_t before = allocation_count();
    call();
    EXPECT_EQ(allocation_count(), before) << "allocated";
    EXPECT_EQ(policy_->bytes(), bytes_);
  }
  void check(std::span<const SlotId> touched) {
    EXPECT_EQ(policy_->size(), held_.size());
    for (const SlotId slot : touched) {
      EXPECT_EQ(policy_->contains(slot), held_.contains(slot)) << "slot " << index_of(slot);
    }
  }

  const FakeSlots& fake_;
  std::unique_ptr<EvictionPolicy> policy_;
  const std::size_t bytes_ = policy_->bytes();
  std::set<SlotId> held_;
  std::vector<SlotId> victims_;
};

}  // namespace cairn
