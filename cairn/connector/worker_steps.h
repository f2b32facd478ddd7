// WorkerSteps: the steps of a worker in their order, between the engine, the leader's outcomes and the rank.
// connector/worker_connector.h is the contract of the calls.
//
// After metadata that cannot be read it is unknown which blocks the engine overwrites: all saves in flight fail, and so
// do those of iterations before the next metadata that is good.
// Metadata of another leader is that of a scheduler that was restarted: its iterations count anew, and the operations of the
// one before are dropped. Metadata of a leader that was replaced is refused.
// A load or save without an outcome is reported as failed only once the rank's fence says that no copy touches its blocks;
// in-step loads are reported with their step all the same.
//
// Thread safety: none; the engine's thread alone.
// Ownership: WorkerConnector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/connector/worker_operations.h"
#include "cairn/rank/rank.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

class WorkerSteps {
 public:
  struct Options {
    std::uint32_t layers = 0;  // of the model
    std::uint32_t blocks = 0;  // of the device
    const Clock* clock = &steady_clock();
    Duration fence_limit{};
    Duration layer_limit{};
    Duration answer_limit{};
  };
  // `rank` and `operations` outlive it.
  WorkerSteps(Rank& rank, WorkerOperations& operations, const Options& options);

  [[nodiscard]] Status bind(std::span<const std::byte> metadata);
  [[nodiscard]] Status start_load(StepEventPtr after);
  [[nodiscard]] Status wait_for_layer(std::uint32_t layer);
  [[nodiscard]] Status save_layer(std::uint32_t layer, StepEventPtr after);
  [[nodiscard]] Status save_step(StepEventPtr after);
  [[nodiscard]] WorkerOutcomes take_outcomes();

 private:
  enum class Phase : std::uint8_t {
    kNone,           // nothing is bound
    kBound,          // after bind()
    kStarted,        // after start_load()
    kEndedByLayers,  // every layer was saved
    kEnded,          // after save_step()
  };

  [[nodiscard]] Result<IterationMetadata> read(std::span<const std::byte> metadata) const;
  // Whether the leader must not be followed: it was replaced, or is an earlier one.
  [[nodiscard]] bool is_outdated(const LeaderId& leader) const;
  // The steps are this leader's from now on. Fails while copies of the one before still touch device blocks.
  [[nodiscard]] Status follow(const LeaderId& leader);
  // Why a call that needs a started iteration is refused. Cold, because such a call comes for every layer.
  [[nodiscard, gnu::cold]] Unexpected<Error> not_started(const char* call) const;
  [[nodiscard]] Status bind_all(std::span<const std::byte> metadata);
  void miss();
  void expect(const IterationMetadata& metadata);
  // Takes the in-step saves of the metadata. Those of the step before end here if that step was not computed.
  void expect_in_step_saves(const IterationMetadata& metadata);
  // Names the layers, from the first on, that were saved in this step: in-step saves may read them.
  void name_layers();
  void wait_for_fences(const IterationMetadata& metadata);
  void fence_all(std::uint64_t iteration);
  [[nodiscard]] Status wait_in_step(std::uint32_t layer);
  void end(StepEventPtr after, Phase phase);
  void finish_in_step();
  void give_up_unanswered();
  // Numbers the connections to the followed leader that outcomes come on; 0 if the rank is not connected to it.
  [[nodiscard]] std::uint32_t connection();
  [[nodiscard]] std::uint64_t next_iteration() const { return iteration_ ? *iteration_ + 1 : 0; }

  Rank& rank_;
  WorkerOperations& operations_;
  const Options options_;

  Phase phase_ = Phase::kNone;
  std::optional<LeaderId> leader_;  // that is followed
  std::vector<LeaderId> replaced_;  // leaders that were followed before, the latest one last
  LeaderId passed_over_;            // that the rank had joined when leader_ was first bound
  bool is_following_ = false;       // no copy of an earlier leader touches device blocks
  LeaderId connected_to_;           // what connection() saw last
  std::uint32_t generation_ = 0;    // of that
  std::uint32_t connections_ = 0;
  std::optional<std::uint64_t> iteration_;  // the latest of the leader that was bound
  bool is_metadata_missed_ = false;         // since then
  std::vector<BlockId> expected_;           // blocks that are loaded in this step
  std::uint64_t binds_ = 0;
  std::vector<std::uint64_t> saved_in_;     // by layer: the number of the bind that it was last saved in
  std::uint32_t saved_layers_ = 0;          // in this step
  std::vector<StepEventPtr> layer_events_;  // of those, each once, except what name_layers() has named
  std::uint32_t named_layers_ = 0;          // in this step
  std::vector<BlockId> in_step_saves_;      // blocks that are saved in the latest step
  bool is_computed_ = false;                // that step
};

}  // namespace cairn
