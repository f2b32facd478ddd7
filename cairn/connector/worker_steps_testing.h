// For tests of a worker's steps: a rank under the test's control, and the messages of a leader.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/operation_testing.h"
#include "cairn/rank/rank.h"

namespace cairn::testing {

class ScriptedRank final : public Rank {
 public:
  struct Mark {
    StepMark mark;
    StepEventPtr after;
    std::uint32_t layers = 0;  // of reached_layers()
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  struct Fence {
    std::vector<BlockId> blocks;
    StepMark overwritten_in;
    TimePoint deadline{};
    friend bool operator==(const Fence&, const Fence&) = default;
  };

  [[nodiscard]] bool follow(const LeaderId& leader, TimePoint /*deadline*/) override {
    followed.push_back(leader);
    return is_clear;
  }
  void reached(StepMark mark, StepEventPtr after) override { marks.push_back({mark, std::move(after), 0}); }
  void reached_layers(std::uint64_t iteration, std::uint32_t first_layers, StepEventPtr after) override {
    marks.push_back({StepMark::begun(iteration), std::move(after), first_layers});
  }
  void expect(std::span<const BlockId> blocks) override { expected.emplace_back(blocks.begin(), blocks.end()); }
  [[nodiscard]] Status wait_for_layer(std::uint32_t layer, TimePoint deadline) override {
    layers.push_back(layer);
    return on_layer ? on_layer(layer, deadline) : Status();
  }
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t /*layer*/) const override { return lacks; }
  void pass_over(std::span<const BlockId> blocks) override {
    passed_over.insert(passed_over.end(), blocks.begin(), blocks.end());
  }
  [[nodiscard]] bool fence(std::span<const BlockId> blocks, StepMark overwritten_in, TimePoint deadline) override {
    fences.push_back({{blocks.begin(), blocks.end()}, overwritten_in, deadline});
    return is_free;
  }
  // Also called while the steps wait, so that the hook can act meanwhile.
  [[nodiscard]] Rank::State state() const override {
    ++asked;
    if (on_state) {
      on_state();
    }
    return now;
  }

  std::vector<LeaderId> followed;
  bool is_clear = true;  // what follow() answers
  std::vector<Mark> marks;
  std::vector<std::vector<BlockId>> expected;
  std::vector<std::uint32_t> layers;
  std::vector<Fence> fences;
  std::function<Status(std::uint32_t, TimePoint)> on_layer;
  std::function<void()> on_state;
  std::vector<BlockId> lacks;  // what lacking() answers
  std::vector<BlockId> passed_over;
  bool is_free = true;  // what fence() answers
  Rank::State now = {.is_connected = true, .generation = 1};
  mutable int asked = 0;
};

inline std::vector<BlockId> blocks_of(std::initializer_list<std::uint32_t> numbers) {
  std::vector<BlockId> blocks;
  for (const std::uint32_t number : numbers) {
    blocks.push_back(BlockId{number});
  }
  return blocks;
}

inline OperationId operation(std::uint64_t slot, std::uint32_t number = 0) { return {slot, number}; }

inline OperationPtr load_of(std::uint64_t slot, std::initializer_list<std::uint32_t> blocks, bool in_step = false) {
  return load_operation(operation(slot), RequestId(slot), blocks_of(blocks), in_step);
}
inline OperationPtr save_of(std::uint64_t slot, std::initializer_list<std::uint32_t> blocks, bool in_step = false) {
  return save_operation(operation(slot), RequestId(slot), blocks_of(blocks), in_step);
}

inline std::vector<std::byte> encoded(const IterationMetadata& metadata) {
  std::vector<std::byte> bytes;
  metadata.encode(bytes);
  return bytes;
}

}  // namespace cairn::testing
