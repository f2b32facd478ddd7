// Request slots, in requests a second on one thread. A request is made with a prompt of 256 tokens in blocks of 16, matched,
// prefilled in one iteration, decoded for 16, its saves told as over, finished and removed; 256 of them run side by side.
//
//   miss    tiers have nothing of the prompt
//   hit     tiers have 8 of its 16 blocks, which are loaded first
//   resumed as miss, and preempted after 8 tokens: the rest of it is matched, loaded and computed again
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "cairn/connector/slot_manager.h"
#include "cairn/tokens/hashes.h"

namespace cairn {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kPromptTokens = 256;
constexpr std::uint32_t kDecodeSteps = 16;
constexpr std::size_t kBatch = 256;  // requests that run side by side

// Stops the whole program: a benchmark of slots that fail measures nothing.
template <typename T>
T must(SlotResult<T> result) {
  if (!result) {
    std::fputs(("slot_bench: " + result.error().to_error().to_string() + "\n").c_str(), stderr);
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

// An engine with a batch of requests that run side by side; tiers that do at once what they are asked.
class Engine {
 public:
  explicit Engine(SlotManager& slots) : slots_(slots), prompt_(kPromptTokens) {
    std::iota(prompt_.begin(), prompt_.end(), Token{1});
    for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i] = SlotId{i};
    }
  }

  // kBatch requests from beginning to end. Returns how many blocks were loaded and saved.
  std::uint64_t run(std::size_t found, bool is_preempted) {
    moved_ = 0;
    ids_.clear();
    for (std::size_t i = 0; i < kBatch; ++i) {
      prompt_[0] = static_cast<Token>(request_);
      ids_.emplace_back("cmpl-7f9d6c1b5a3e4820-" + std::to_string(request_++));
      prefill(*must(slots_.create_slot(ids_.back(), prompt_, kNoSalt)), found);
    }
    for (std::uint32_t step = 0; step < kDecodeSteps; ++step) {
      ++iteration_;
      for (const RequestId& id : ids_) {
        decode(*must(slots_.get_slot(id)), is_preempted && step == kDecodeSteps / 2);
      }
    }
    for (const RequestId& id : ids_) {
      ExternallyManagedDeviceSlot& slot = *must(slots_.get_slot(id));
      must(slot.mark_as_finished(iteration_));
      carry_out(slot);
      must(slots_.remove_slot(id));
    }
    return moved_;
  }

 private:
  void prefill(ExternallyManagedDeviceSlot& slot, std::size_t found) {
    benchmark::DoNotOptimize(slot.keys_to_match(0).data());
    must(slot.acquire_all_local_matches(0, found));
    must(slot.append_mutable_device_blocks(blocks_));
    if (slot.state().staged_tokens()) {
      must(slot.mark_as_scheduled(iteration_));
      carry_out(slot);
    }
    must(slot.mark_as_scheduled(iteration_));
    must(slot.advance_computed_position(slot.sequence().size() - slot.computed_tokens()));
    carry_out(slot);
  }
  void decode(ExternallyManagedDeviceSlot& slot, bool is_preempted) {
    if (is_preempted) {
      must(slot.preempt(iteration_));
      prefill(slot, kPromptTokens / kBlockSize);
    }
    const Token token = static_cast<Token>(iteration_);
    must(slot.append_tokens({&token, 1}));
    must(slot.mark_as_scheduled(iteration_));
    must(slot.advance_computed_position(1));
    carry_out(slot);
  }
  void carry_out(ExternallyManagedDeviceSlot& slot) {
    for (const SlotOperation& operation : slot.take_pending_operations()) {
      if (const auto* load = std::get_if<OnboardOperation>(&operation)) {
        moved_ += load->keys.size();
        must(slot.onboard_done(load->id, load->keys.size()));
      } else if (const auto* save = std::get_if<OffloadOperation>(&operation)) {
        moved_ += save->keys.size();
        must(slot.offload_done(save->id));
      }
    }
  }

  SlotManager& slots_;
  std::vector<Token> prompt_;
  std::array<SlotId, kPromptTokens / kBlockSize + 1> blocks_{};
  std::vector<RequestId> ids_;
  std::uint64_t request_ = 0;
  std::uint64_t iteration_ = 0;
  std::uint64_t moved_ = 0;
};

void requests(benchmark::State& state, std::size_t found, bool is_preempted) {
  Result<SlotManager> slots = SlotManager::make(kBlockSize);
  Engine engine(*slots);
  std::uint64_t moved = 0;
  for (auto _ : state) {
    moved += engine.run(found, is_preempted);
  }
  const auto count = static_cast<double>(state.iterations() * kBatch);
  state.counters["requests_per_second"] = benchmark::Counter(count, benchmark::Counter::kIsRate);
  state.counters["blocks_per_request"] = static_cast<double>(moved) / count;
}

BENCHMARK_CAPTURE(requests, miss, 0, false);
BENCHMARK_CAPTURE(requests, hit, 8, false);
BENCHMARK_CAPTURE(requests, resumed, 0, true);

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
