// What a router knows after the events of a stream, with the promises of a stream checked at each event.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include "cairn/events/kv_event.h"

namespace cairn::events_testing {

class TestRouter {
 public:
  using Block = std::pair<CacheLevel, std::uint64_t>;

  // `parents_first`: a block may only be stored after its parent.
  explicit TestRouter(bool parents_first = true) : parents_first_(parents_first) {}

  void apply(const KvEvent& event) {
    if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
      std::optional<std::uint64_t> parent = stored->parent;
      for (const std::uint64_t hash : stored->hashes) {
        EXPECT_TRUE(blocks_.emplace(event.tier, hash).second) << "block " << hash << " is stored twice";
        EXPECT_TRUE(!parents_first_ || !parent || blocks_.contains({event.tier, *parent}))
            << "block " << hash << " comes before its parent " << *parent;
        parent = hash;
      }
    } else if (const auto* const removed = std::get_if<KvRemoved>(&event.data)) {
      for (const std::uint64_t hash : removed->hashes) {
        EXPECT_EQ(blocks_.erase({event.tier, hash}), 1U) << "block " << hash << " is removed, but was not there";
      }
    } else {
      blocks_.clear();
    }
  }
  void apply(std::span<const KvEvent> events) {
    for (const KvEvent& event : events) {
      apply(event);
    }
  }

  [[nodiscard]] const std::set<Block>& blocks() const { return blocks_; }
  [[nodiscard]] std::set<std::uint64_t> hashes() const {
    std::set<std::uint64_t> hashes;
    for (const auto& [tier, hash] : blocks_) {
      hashes.insert(hash);
    }
    return hashes;
  }

 private:
  const bool parents_first_;
  std::set<Block> blocks_;
};

}  // namespace cairn::events_testing
