// Request slots, in requests per second on one thread. A request has a prompt of 256 tokens in blocks of 16. It is
// created, matched, prefilled in one iteration, decoded for 16, its saves are reported as done, and it is finished and
// removed. 256 requests run side by side, at different steps; one iteration of the benchmark is one iteration of all of
// them.
//
//   miss     the tiers have no block of the prompt
//   hit      the tiers have 8 of its 16 blocks, which are loaded first
//   resumed  as miss, but preempted after 8 tokens, then matched, loaded and computed again
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

// Ends the program: a benchmark of slots that fail measures nothing.
template <typename T>
T must(Result<T> result) {
  if (!result) {
    std::fputs(("slot_bench: " + result.error().to_string() + "\n").c_str(), stderr);
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

// An engine that always runs kBatch requests, at different steps, with tiers that complete every operation at once.
class Engine {
 public:
  Engine(SlotManager& slots, std::size_t found, bool preempts)
      : slots_(slots), found_(found), preempts_(preempts), prompt_(kPromptTokens) {
    std::iota(prompt_.begin(), prompt_.end(), Token{1});
    for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i] = BlockId{i};
    }
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      running_.push_back(begin());
      for (std::uint32_t step = 0; step < i % kDecodeSteps; ++step) {
        decode(running_.back());
      }
    }
  }

  // One step of each request; finished ones are replaced by new ones. Returns how many have finished.
  std::uint64_t run() {
    const std::uint64_t before = request_;
    ++iteration_;
    for (Running& running : running_) {
      if (running.steps == kDecodeSteps) {
        end(running);
        running = begin();
      } else {
        decode(running);
      }
    }
    return request_ - before;
  }
  // Blocks loaded and saved.
  [[nodiscard]] std::uint64_t moved_blocks() const { return moved_; }

 private:
  struct Running {
    RequestId id;
    std::uint32_t steps = 0;
  };

  Running begin() {
    prompt_[0] = static_cast<Token>(request_);
    Running running{"cmpl-7f9d6c1b5a3e4820-" + std::to_string(request_++)};
    prefill(*must(slots_.create_slot(running.id, prompt_)), found_);
    return running;
  }
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
  void decode(Running& running) {
    ExternallyManagedDeviceSlot& slot = *must(slots_.get_slot(running.id));
    if (preempts_ && running.steps == kDecodeSteps / 2) {
      must(slot.preempt(iteration_));
      prefill(slot, kPromptTokens / kBlockSize);
    }
    const Token token = static_cast<Token>(iteration_);
    must(slot.append_tokens({&token, 1}));
    must(slot.mark_as_scheduled(iteration_));
    must(slot.advance_computed_position(1));
    carry_out(slot);
    ++running.steps;
  }
  void end(const Running& running) {
    ExternallyManagedDeviceSlot& slot = *must(slots_.get_slot(running.id));
    must(slot.mark_as_finished(iteration_));
    carry_out(slot);
    must(slots_.remove_slot(running.id));
  }
  void carry_out(ExternallyManagedDeviceSlot& slot) {
    slot.take_pending_operations(taken_);
    for (const OperationPtr& operation : taken_.start) {
      moved_ += operation->keys.size();
      must(operation->is_load ? slot.onboard_done(operation->id, operation->keys.size())
                              : slot.offload_done(operation->id));
    }
  }

  SlotManager& slots_;
  const std::size_t found_;
  const bool preempts_;
  std::vector<Token> prompt_;
  std::array<BlockId, kPromptTokens / kBlockSize + 1> blocks_{};
  std::vector<Running> running_;
  SlotOperations taken_;
  std::uint64_t request_ = 0;
  std::uint64_t iteration_ = 0;
  std::uint64_t moved_ = 0;
};

void requests(benchmark::State& state, std::size_t found, bool preempts) {
  Result<SlotManager> slots = SlotManager::make(kBlockSize, KeyHasher::of_process());
  Engine engine(*slots, found, preempts);
  const std::uint64_t moved_before = engine.moved_blocks();
  std::uint64_t ended = 0;
  for (auto _ : state) {
    ended += engine.run();
  }
  const auto count = static_cast<double>(ended);
  state.counters["requests_per_second"] = benchmark::Counter(count, benchmark::Counter::kIsRate);
  state.counters["blocks_per_request"] = static_cast<double>(engine.moved_blocks() - moved_before) / count;
}

BENCHMARK_CAPTURE(requests, miss, 0, false);
BENCHMARK_CAPTURE(requests, hit, 8, false);
BENCHMARK_CAPTURE(requests, resumed, 0, true);

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
