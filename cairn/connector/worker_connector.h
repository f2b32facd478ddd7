// WorkerConnector: the worker's side of an engine: one rank's KV tensors, and the loads and saves of each iteration.
//
// Does:     in the order of an engine's step:
//             bind(metadata)      and waits for fences: saves of blocks that this step writes to
//             start_load()        loads may touch their blocks from now on
//             wait_for_layer()    before each layer, where loads come in the step
//             save_layer() / save_step()   after each layer, or after all: what the step computed is there
//             take_report()       what is finished and what failed
//           A step with nothing to do takes well under 2 us.
// Reports:  what is told is what the leader says of all ranks together, so that every rank reports the same.
// Failed:   blocks whose load failed are named: the engine computes them again and uses no result of this step that
//           read them. Where the leader is gone, everything that is expected fails, by its deadline.
// Owner:    the engine's worker. Threads: one at a time, the engine's; only what is said to wait waits, and never
//           beyond its deadline.
// Restart:  the first metadata of a scheduler that was started again drops what the one before had under way; later metadata
//           of the old one is refused (kFailedPrecondition). While copies of the old one still touch device blocks, bind()
//           returns kUnavailable: the step may not compute before bind() succeeds.
// Fails:    calls out of order: kFailedPrecondition; bad metadata: kCorrupt. The step then goes on without a cache, and
//           saves that may still read blocks fail, since nobody knows which blocks the step writes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_id.h"
#include "cairn/layout/tensor_view.h"
#include "cairn/memory/region.h"
#include "cairn/rank/rank.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

// One tensor of an engine, by its memory, sizes and strides: see layout/tensor_view.h for what engines have.
struct KvTensor {
  void* base = nullptr;  // the first element
  std::uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = kNoDevice;
  std::vector<TensorAxis> axes = {};
  std::vector<std::uint64_t> sizes = {};
  std::vector<std::int64_t> strides = {};  // elements
};

// Layers of one shape on one device. All groups have the same number of blocks.
struct KvGroup {
  std::string name;
  std::vector<std::string> layers;  // their names, in the order of the tensors
  std::vector<KvTensor> tensors;    // one a layer; or two, K before V; or one for all
  std::uint32_t element_bits = 16;
  std::uint32_t page_size = 16;  // tokens a block
};

struct WorkerReport {
  struct Loaded {
    RequestId request;
    bool whole = true;  // all blocks of the load are there
    friend bool operator==(const Loaded&, const Loaded&) = default;
  };
  std::vector<Loaded> loaded = {};
  std::vector<RequestId> saved = {};        // a save of theirs is over, saved or not
  std::vector<BlockId> failed_blocks = {};  // device blocks that hold nothing to be used
  friend bool operator==(const WorkerReport&, const WorkerReport&) = default;
};

class WorkerConnector {
 public:
  struct Options {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    std::optional<RankAddress> leader = {};  // one of the two
    LocalLeader* group = nullptr;            // a Leader of this process
    std::string secret = {};
    const Clock* clock = &steady_clock();
    Duration fence_limit = std::chrono::milliseconds(200);  // that bind() waits for saves at most
    Duration layer_limit = std::chrono::seconds(10);        // that wait_for_layer() and take_report() wait at most
    // That the leader may take to say what became of a load or save; then it counts as failed.
    Duration answer_limit = std::chrono::seconds(120);
    std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
    Duration first_connection = std::chrono::seconds(60);
  };
  // Registers the engine's tensors and joins the leader. `layers` of all groups, in the order in which the model
  // computes them, give the numbers that layers have here.
  [[nodiscard]] static Result<std::unique_ptr<WorkerConnector>> make(std::vector<KvGroup> groups,
                                                                     std::vector<std::string> layers, Options options);
  WorkerConnector(const WorkerConnector&) = delete;
  WorkerConnector& operator=(const WorkerConnector&) = delete;
  ~WorkerConnector();

  [[nodiscard]] std::optional<std::uint32_t> layer(std::string_view name) const;

  // --- a step ---
  // Waits for fences, up to their limit; saves that are not over by then fail.
  [[nodiscard]] Status bind(std::span<const std::byte> metadata);
  // The blocks that this step loads into are free to be written once `after` is over, and all that was told with events
  // before it.
  [[nodiscard]] Status start_load(StepEventPtr after = {});
  // Waits until the layer of all loads of this step is there, but for what will not come. An error: some will not, or did
  // not in time; go on, the blocks are in the report. They count as failed whatever comes of them later, since they may have
  // been read too early, and so do those after them in their load; other loads are good, and waited for as before.
  [[nodiscard]] Status wait_for_layer(std::uint32_t layer);
  // The KV that this step computed for the layer is there once `after` is over. Layers come in any order, each once;
  // the last one that was missing ends the step, as save_step() does, and save_step() then changes nothing. A step in
  // which some layers are not saved is ended by save_step().
  [[nodiscard]] Status save_layer(std::uint32_t layer, StepEventPtr after = {});
  [[nodiscard]] Status save_step(StepEventPtr after = {});
  // What is over since the last call, each once; ends a step that was started. Waits for the loads that this step read
  // layer by layer: their bytes are verified now. Those that are not known by the limit are told as failed, and what is
  // heard of them later changes nothing. May also be called between steps.
  [[nodiscard]] WorkerReport take_report();

  [[nodiscard]] Rank::State state() const;

 private:
  class Impl;
  explicit WorkerConnector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
