#include "cairn/connector/worker_steps.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

// How often a wait for a layer looks at the leader's outcomes: a load that failed before it began has no copy that the rank
// knows of.
constexpr Duration kLayerLook = std::chrono::milliseconds(1);
// Replaced leaders that are remembered.
constexpr std::size_t kReplacedLeaders = 256;

// kOver when all events have ended, kFailed when one has failed.
class AllEvents final : public StepEvent {
 public:
  explicit AllEvents(std::vector<StepEventPtr> events) : events_(std::move(events)) {}
  [[nodiscard]] StepState state() override {
    return joined([](StepEvent& event) { return event.state(); });
  }
  [[nodiscard]] StepState wait_until(TimePoint deadline) override {
    return joined([deadline](StepEvent& event) { return event.wait_until(deadline); });
  }

 private:
  template <typename Ask>
  [[nodiscard]] StepState joined(Ask ask) {
    StepState all = StepState::kOver;
    for (const StepEventPtr& event : events_) {
      const StepState state = ask(*event);
      if (state == StepState::kFailed) {
        return state;
      }
      all = state == StepState::kPending ? state : all;
    }
    return all;
  }

  const std::vector<StepEventPtr> events_;
};

StepEventPtr join(std::vector<StepEventPtr>& events) {
  if (events.empty()) {
    return {};
  }
  return events.size() == 1 ? std::move(events.front()) : std::make_shared<AllEvents>(std::move(events));
}

}  // namespace

WorkerSteps::WorkerSteps(Rank& rank, WorkerOperations& operations, const Options& options)
    : rank_(rank), operations_(operations), options_(options), saved_in_(options.layers, 0) {}

std::uint32_t WorkerSteps::connection() {
  const Rank::State state = rank_.state();
  if (!state.is_connected || state.leader != leader_) {
    return 0;
  }
  if (connections_ == 0 || connected_to_ != state.leader || generation_ != state.generation) {
    connected_to_ = state.leader;
    generation_ = state.generation;
    ++connections_;
  }
  return connections_;
}

Result<IterationMetadata> WorkerSteps::read(std::span<const std::byte> metadata) const {
  CAIRN_TRY_ASSIGN(IterationMetadata read, IterationMetadata::decode(metadata));
  if (is_outdated(read.leader)) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("iteration ", read.iteration,
                        " is of a scheduler that was replaced by another one; stop the old scheduler"));
  }
  if (read.leader == leader_ && iteration_ && read.iteration <= *iteration_) {
    return fail(ErrorCode::kFailedPrecondition, str_cat("iteration ", read.iteration, " was bound after iteration ",
                                                        *iteration_, "; bind metadata in the order of iterations"));
  }
  for (const auto* list : {&read.loads, &read.saves, &read.fences}) {
    for (const OperationPtr& operation : *list) {
      for (const BlockId block : operation->block_ids) {
        if (index_of(block) >= options_.blocks) {
          return fail(ErrorCode::kCorrupt, str_cat("iteration ", read.iteration, " names block ", index_of(block),
                                                   ", but only ", options_.blocks, " blocks are registered"));
        }
      }
    }
  }
  return read;
}

Status WorkerSteps::bind(std::span<const std::byte> metadata) {
  const std::optional<std::uint64_t> before = iteration_;
  try {
    return bind_all(metadata);
  } catch (const std::bad_alloc&) {
    // When it is bound again, all saves that may read blocks of this step fail.
    iteration_ = before;
    phase_ = Phase::kNone;
    is_metadata_missed_ = true;
    return fail(ErrorCode::kExhausted, "out of memory; bind the metadata again before the step computes");
  }
}

Status WorkerSteps::bind_all(std::span<const std::byte> metadata) {
  Result<IterationMetadata> good = read(metadata);
  if (!good) {
    miss();
    return Unexpected(good.error());
  }
  phase_ = Phase::kNone;
  CAIRN_TRY(follow(good->leader));
  iteration_ = good->iteration;
  ++binds_;
  saved_layers_ = 0;
  layer_events_.clear();
  expect(*good);
  expect_in_step_saves(*good);
  if (!good->loads.empty() || !good->saves.empty()) {
    operations_.bind(*good, connection());
  }
  wait_for_fences(*good);
  phase_ = Phase::kBound;
  return {};
}

// The leader that started later is the later one, unless a clock was set back: then the rank knows, once it has joined the
// new one.
bool WorkerSteps::is_outdated(const LeaderId& leader) const {
  if (!leader_ || leader == *leader_) {
    return false;
  }
  const bool is_replaced = std::ranges::find(replaced_, leader) != replaced_.end();
  const bool is_earlier = leader.started < leader_->started;
  const Rank::State rank = rank_.state();
  const bool is_joined_since = rank.is_connected && rank.leader == leader && leader != passed_over_;
  return is_joined_since ? is_replaced && is_earlier : is_replaced || is_earlier;
}

Status WorkerSteps::follow(const LeaderId& leader) {
  if (leader_ == leader && is_following_) {
    return {};
  }
  if (leader_ != leader) {
    if (leader_) {
      replaced_.push_back(*leader_);
      if (replaced_.size() > kReplacedLeaders) {
        replaced_.erase(replaced_.begin());
      }
    }
    passed_over_ = rank_.state().leader;
    leader_ = leader;
    iteration_.reset();
    in_step_saves_.clear();
    operations_.follow(leader);
  }
  is_following_ = rank_.follow(leader, options_.clock->now() + options_.fence_limit);
  if (!is_following_) {
    return fail(ErrorCode::kUnavailable,
                "copies of an earlier scheduler still touch device blocks; bind again before the step computes");
  }
  return {};
}

// The step continues without a cache. It is unknown which blocks it overwrites: earlier copies must not count.
void WorkerSteps::miss() {
  phase_ = Phase::kNone;
  is_metadata_missed_ = true;
  expect({});
  fence_all(next_iteration());
  in_step_saves_.clear();
}

void WorkerSteps::expect(const IterationMetadata& metadata) {
  const bool was_expecting = !expected_.empty();
  expected_.clear();
  for (const OperationPtr& load : metadata.loads) {
    if (load->in_step) {
      expected_.insert(expected_.end(), load->block_ids.begin(), load->block_ids.end());
    }
  }
  if (was_expecting || !expected_.empty()) {
    rank_.expect(expected_);
  }
}

void WorkerSteps::expect_in_step_saves(const IterationMetadata& metadata) {
  if (!in_step_saves_.empty() && !is_computed_) {
    // The engine has given that step up: nobody knows what is in the blocks.
    (void)rank_.fence(in_step_saves_, StepMark::begun(metadata.iteration), options_.clock->now());
  }
  in_step_saves_.clear();
  for (const OperationPtr& save : metadata.saves) {
    if (save->in_step) {
      in_step_saves_.insert(in_step_saves_.end(), save->block_ids.begin(), save->block_ids.end());
    }
  }
  named_layers_ = 0;
  is_computed_ = false;
}

void WorkerSteps::wait_for_fences(const IterationMetadata& metadata) {
  if (is_metadata_missed_) {
    is_metadata_missed_ = false;
    fence_all(metadata.iteration);
    return;
  }
  if (metadata.fences.empty()) {
    return;
  }
  std::vector<BlockId> blocks;
  for (const OperationPtr& save : metadata.fences) {
    blocks.insert(blocks.end(), save->block_ids.begin(), save->block_ids.end());
  }
  const TimePoint deadline = options_.clock->now() + options_.fence_limit;
  (void)operations_.wait_for(metadata.fences, deadline, [this] { return connection() != 0; });
  // Also for saves that have ended: no copy of these blocks may count from now on.
  (void)rank_.fence(blocks, StepMark::begun(metadata.iteration), deadline);
}

void WorkerSteps::fence_all(std::uint64_t iteration) {
  std::vector<BlockId> blocks(options_.blocks);
  for (std::uint32_t i = 0; i < options_.blocks; ++i) {
    blocks[i] = BlockId{i};
  }
  (void)rank_.fence(blocks, StepMark::begun(iteration), options_.clock->now() + options_.fence_limit);
}

Status WorkerSteps::start_load(StepEventPtr after) {
  if (phase_ != Phase::kBound) {
    return fail(ErrorCode::kFailedPrecondition, phase_ == Phase::kNone
                                                    ? "start_load: no iteration is bound; bind() comes first"
                                                    : "start_load: this iteration is started already");
  }
  rank_.reached(StepMark::begun(*iteration_), std::move(after));
  phase_ = Phase::kStarted;
  return {};
}

Unexpected<Error> WorkerSteps::not_started(const char* call) const {
  switch (phase_) {
    case Phase::kNone:
      return fail(ErrorCode::kFailedPrecondition, str_cat(call, ": no iteration is bound; bind() comes first"));
    case Phase::kBound:
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat(call, ": the iteration is not started; start_load() comes first"));
    case Phase::kStarted:
    case Phase::kEndedByLayers:
    case Phase::kEnded:
      break;
  }
  return fail(ErrorCode::kFailedPrecondition, str_cat(call, ": this iteration is computed already"));
}

Status WorkerSteps::wait_for_layer(std::uint32_t layer) {
  if (phase_ != Phase::kStarted) {
    return not_started("wait_for_layer");
  }
  if (layer >= options_.layers) {
    return fail(ErrorCode::kOutOfRange, str_cat("wait_for_layer: layer ", layer, " of ", options_.layers));
  }
  if (expected_.empty()) {
    return {};
  }
  Status there = wait_in_step(layer);
  if (there) {
    return there;
  }
  // The engine continues. Blocks that it reads too early count as failed, and their later layers are not waited for.
  const std::vector<BlockId> lacking = rank_.lacking(layer);
  operations_.read_early(lacking);
  rank_.pass_over(lacking);
  return fail(there.error().code, str_cat("layer ", layer, " of iteration ", *iteration_, ": ", there.error().message));
}

Status WorkerSteps::wait_in_step(std::uint32_t layer) {
  const TimePoint deadline = options_.clock->now() + options_.layer_limit;
  for (;;) {
    const WorkerOperations::InStep loads = operations_.in_step();
    if (const std::vector<BlockId> blocks = operations_.take_short(); !blocks.empty()) {
      rank_.pass_over(blocks);
    }
    Status there;
    if (loads.is_pending) {
      there = rank_.wait_for_layer(layer, std::min(deadline, options_.clock->now() + kLayerLook));
      if (!there && there.error().code == ErrorCode::kExpired && options_.clock->now() < deadline) {
        continue;
      }
    }
    if (there && loads.is_short) {
      return fail(ErrorCode::kUnavailable, "a load of this step failed in part");
    }
    return there;
  }
}

Status WorkerSteps::save_layer(std::uint32_t layer, StepEventPtr after) {
  if (phase_ != Phase::kStarted) {
    return not_started("save_layer");
  }
  if (layer >= options_.layers) {
    return fail(ErrorCode::kOutOfRange, str_cat("save_layer: layer ", layer, " of ", options_.layers));
  }
  if (saved_in_[layer] == binds_) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("save_layer: layer ", layer, " is saved already in iteration ", *iteration_));
  }
  if (after != nullptr && (layer_events_.empty() || layer_events_.back() != after)) {
    layer_events_.push_back(std::move(after));
  }
  if (saved_layers_ + 1 == options_.layers) {
    end({}, Phase::kEndedByLayers);
  }
  ++saved_layers_;
  saved_in_[layer] = binds_;
  if (!in_step_saves_.empty() && phase_ == Phase::kStarted) {
    name_layers();
  }
  return {};
}

void WorkerSteps::name_layers() {
  const std::uint32_t named = named_layers_;
  while (saved_in_[named_layers_] == binds_) {  // the last layer has ended the step
    ++named_layers_;
  }
  if (named_layers_ > named) {
    rank_.reached_layers(*iteration_, named_layers_, join(layer_events_));
    layer_events_.clear();
  }
}

Status WorkerSteps::save_step(StepEventPtr after) {
  if (phase_ == Phase::kEndedByLayers) {
    phase_ = Phase::kEnded;
    return {};
  }
  if (phase_ != Phase::kStarted) {
    return not_started("save_step");
  }
  end(std::move(after), Phase::kEnded);
  return {};
}

void WorkerSteps::end(StepEventPtr after, Phase phase) {
  if (after != nullptr) {
    layer_events_.push_back(std::move(after));
  }
  rank_.reached(StepMark::computed(*iteration_), join(layer_events_));
  layer_events_.clear();
  is_computed_ = true;
  phase_ = phase;
}

WorkerOutcomes WorkerSteps::take_outcomes() {
  const bool is_started = phase_ >= Phase::kStarted;
  phase_ = is_started ? Phase::kNone : phase_;
  if (!operations_.has_any()) {
    return {};
  }
  give_up_unanswered();
  if (is_started) {
    finish_in_step();
  }
  return operations_.take();
}

void WorkerSteps::give_up_unanswered() {
  const Rank::State rank = rank_.state();
  if (!rank.is_connected && rank.transfers > 0) {
    return;  // its copies still touch blocks; it ends them first
  }
  const TimePoint now = options_.clock->now();
  for (const OperationPtr& operation : operations_.unanswered(connection(), now - options_.answer_limit)) {
    if (rank_.fence(operation->block_ids, StepMark::begun(next_iteration()), now)) {
      operations_.give_up(operation->id);
    }
  }
}

void WorkerSteps::finish_in_step() {
  if (!operations_.in_step().is_pending) {
    return;
  }
  const std::uint32_t of_loads = connection();
  const TimePoint deadline = options_.clock->now() + options_.layer_limit;
  const auto is_answered = [&] { return of_loads != 0 && connection() == of_loads; };
  if (operations_.wait_for_in_step(deadline, is_answered)) {
    return;
  }
  for (const OperationPtr& load : operations_.pending_in_step()) {
    // The engine computes into these blocks next: nothing may write to them from now on.
    (void)rank_.fence(load->block_ids, StepMark::begun(next_iteration()), options_.clock->now() + options_.layer_limit);
    operations_.give_up(load->id);
  }
}

}  // namespace cairn
