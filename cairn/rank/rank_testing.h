// For tests of a rank: a small model in host memory and files, and what the rank answers.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cairn/layout/block_pattern.h"
#include "cairn/layout/layout_testing.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/rank/rank_memory.h"
#include "cairn/rank/rank_routes.h"
#include "cairn/rank/rank_transfers.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/step_event_testing.h"

namespace cairn::testing {

inline constexpr std::uint32_t kRankBlocks = 16;  // of every tier
// Much longer than any test takes; only a defect reaches it.
inline constexpr std::chrono::seconds kRankPatience{20};

inline TimePoint in_time(Duration from_now = kRankPatience) { return steady_clock().now() + from_now; }

// Three layers, pages of 4 tokens, two heads for each rank.
inline ManagerConfig rank_config(const std::string& disk_path, std::uint32_t ranks = 1) {
  ManagerConfig config;
  config.block_size = 4;
  config.model = {.name = "rank", .layers = 3, .heads = 2 * ranks, .head_size = 8, .element_type = "f16"};
  config.device.blocks = kRankBlocks;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = kRankBlocks;
  config.disk.blocks = kRankBlocks;
  config.disk.path = disk_path;
  return config;
}

inline constexpr KvShape kRankShape{
    .layers = 3, .kv = 2, .page_size = 4, .heads = 2, .head_size = 8, .element_bits = 16};

// The engine's memory: groups of layers, each a layout.
inline LayoutGroups device_groups(std::vector<LayerGroup> groups, std::uint32_t model_layers = 3,
                                  std::uint32_t blocks = kRankBlocks) {
  std::vector<BlockLayoutPtr> layouts;
  for (const LayerGroup& group : groups) {
    layouts.push_back(TestLayout::make({group.shape, Arrangement::kLayersKvNhd, blocks, 1}).layout());
  }
  return *LayoutGroups::make(*LayerGroups::make(model_layers, std::move(groups)), std::move(layouts));
}
inline LayoutGroups one_group() { return device_groups({{"all", kRankShape, {0, 1, 2}}}); }
inline LayoutGroups k_and_v_apart() {
  KvShape shape = kRankShape;
  shape.layers = 6;
  shape.kv = 1;
  return device_groups({{"all", shape, {0, 1, 2}}});
}
// The second layer of the model is of another kind.
inline LayoutGroups two_groups() {
  KvShape outer = kRankShape;
  outer.layers = 2;
  return device_groups(
      {{"outer", outer, {0, 2}},
       {"inner", {.layers = 1, .kv = 1, .page_size = 4, .heads = 1, .head_size = 24, .element_bits = 8}, {1}}});
}

// The answers of a rank, by transfer id.
class RankAnswers {
 public:
  void add(const RankMessage& message) {
    const std::lock_guard lock(mutex_);
    if (const auto* done = std::get_if<RankTransferOutcome>(&message)) {
      EXPECT_TRUE(done_.emplace(done->id, *done).second) << "reported twice";
    } else if (const auto* settled = std::get_if<RankSettled>(&message)) {
      EXPECT_TRUE(done_.contains(settled->id)) << "settled before its outcome";
      settled_[settled->id] = true;
    }
    changed_.notify_all();
  }
  RankTransferOutcome done(TransferId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kRankPatience, [&] { return done_.contains(id); }));
    return done_[id];
  }
  void wait_settled(TransferId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kRankPatience, [&] { return settled_.contains(id); }));
  }
  bool is_done(TransferId id) {
    const std::lock_guard lock(mutex_);
    return done_.contains(id);
  }
  bool is_settled(TransferId id) {
    const std::lock_guard lock(mutex_);
    return settled_.contains(id);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<TransferId, RankTransferOutcome> done_;
  std::map<TransferId, bool> settled_;
};

// Patterns of a block, in all groups.
inline void write_block(const LayoutGroups& device, std::uint32_t block, std::uint64_t seed) {
  for (const BlockLayoutPtr& layout : device.layouts()) {
    write_pattern(*layout, block, seed);
  }
}
inline bool holds(const LayoutGroups& device, std::uint32_t block, std::uint64_t seed) {
  for (const BlockLayoutPtr& layout : device.layouts()) {
    if (find_stranger(*layout, block, seed)) {
      return false;
    }
  }
  return true;
}

}  // namespace cairn::testing
