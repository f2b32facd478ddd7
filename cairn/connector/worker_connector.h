// WorkerConnector: the worker's side of the connector: the KV tensors of one rank, and the loads and saves of each
// iteration. In each step the engine calls:
//   bind(metadata)             waits for fences: saves of blocks that this step writes to
//   start_load()               loads may write to their blocks from now on
//   wait_for_layer()           before each layer, if loads arrive in the step
//   save_layer(), save_step()  after each layer, or after all of them: what the step computed may be read
//   take_outcomes()            which loads and saves have ended, and which blocks failed
// A step without loads and saves takes well under 2 us.
//
// Outcomes are what the leader says of all ranks together, so that every rank reports the same. Blocks whose load failed are
// named: the engine computes them again and uses no result of this step that read them. If the leader is gone, everything
// that is expected fails, by its deadline.
// The first metadata of a scheduler that was restarted drops what the one before had in flight; later metadata of the old
// one is refused (kFailedPrecondition). While copies of the old one still touch device blocks, bind() returns kUnavailable:
// the step may not compute before bind() succeeds.
//
// Thread safety: none; the engine's thread alone. Calls that wait say so, and never wait beyond their limit.
// Ownership: the engine's worker.
// Errors: calls out of order are kFailedPrecondition; metadata that cannot be read is kCorrupt: the step then continues
// without a cache, and saves that may still read blocks fail, since it is unknown which blocks the step writes to.
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
#include "cairn/layout/block_layout.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/step_event.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

class LocalLeader;
class TransferExecutor;

// One tensor of an engine, by its memory, sizes and strides; layout/block_layout.h lists what engines have.
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

struct WorkerOutcomes {
  struct Loaded {
    RequestId request;
    bool whole = true;  // all blocks of the load are there
    friend bool operator==(const Loaded&, const Loaded&) = default;
  };
  std::vector<Loaded> loaded = {};          // requests whose load has ended
  std::vector<RequestId> saved = {};        // requests of which a save has ended, saved or not
  std::vector<BlockId> failed_blocks = {};  // device blocks whose content must not be used
  friend bool operator==(const WorkerOutcomes&, const WorkerOutcomes&) = default;
};

class WorkerConnector {
 public:
  struct Options {
    std::uint32_t rank = 0;
    RankGrid ranks = 1;  // or {tensor, pipeline}
    // With pipeline parallelism: the number in the model of this worker's first layer. std::nullopt: the layers are dealt
    // evenly (even_layers()), or this is the first stage.
    std::optional<std::uint32_t> first_layer = {};
    std::optional<RankAddress> address = {};  // of the leader, or
    LocalLeader* leader = nullptr;            // a leader of this process
    std::string secret = {};
    const Clock* clock = &steady_clock();
    Duration fence_limit = std::chrono::milliseconds(200);  // the longest that bind() waits for saves
    Duration layer_limit = std::chrono::seconds(10);  // the longest that wait_for_layer() and take_outcomes() wait
    // A load or save without an outcome from the leader for so long counts as failed.
    Duration answer_limit = std::chrono::seconds(120);
    // For tests and simulations inside Cairn, because its types are not installed: ManagerParts::around.
    std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
    Duration first_connection = std::chrono::seconds(60);
  };
  // Registers the engine's tensors and joins the leader. `layers` of all groups, in the order in which the model
  // computes them, give the numbers that layers have here: from 0 on in every pipeline stage.
  [[nodiscard]] static Result<std::unique_ptr<WorkerConnector>> make(std::vector<KvGroup> groups,
                                                                     std::vector<std::string> layers, Options options);
  WorkerConnector(const WorkerConnector&) = delete;
  WorkerConnector& operator=(const WorkerConnector&) = delete;
  ~WorkerConnector();

  [[nodiscard]] std::optional<std::uint32_t> layer(std::string_view name) const;

  // --- a step ---
  // Waits for fences, up to fence_limit; saves that are not over by then fail.
  [[nodiscard]] Status bind(std::span<const std::byte> metadata);
  // Loads may write to the blocks of this step once `after` and all events given before it have ended.
  [[nodiscard]] Status start_load(StepEventPtr after = {});
  // Waits until the layer of all loads of this step is there. Fails if some blocks will not be loaded, or not in time; the
  // engine goes on, and the blocks are among the failed ones of take_outcomes(): they may have been read too early, and so
  // may those after them in their load. Other loads are good, and waited for as before.
  [[nodiscard]] Status wait_for_layer(std::uint32_t layer);
  // The KV that this step computed for the layer is there once `after` has ended. Layers come in any order, each once.
  // The last missing layer ends the step, as save_step() does, and save_step() then has no effect. If some layers are
  // not saved, save_step() ends the step.
  [[nodiscard]] Status save_layer(std::uint32_t layer, StepEventPtr after = {});
  [[nodiscard]] Status save_step(StepEventPtr after = {});
  // What has ended since the last call, each once; ends a step that was started. Waits for the loads that this step
  // read layer by layer: their bytes are verified now. Those without an outcome by layer_limit are reported as failed,
  // and later outcomes of them are ignored. May also be called between steps.
  [[nodiscard]] WorkerOutcomes take_outcomes();

  [[nodiscard]] RankState state() const;

 private:
  class Impl;
  explicit WorkerConnector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
