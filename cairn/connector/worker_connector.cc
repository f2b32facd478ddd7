#include "cairn/connector/worker_connector.h"

#include <algorithm>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/connector/kv_groups.h"
#include "cairn/connector/worker_operations.h"
#include "cairn/connector/worker_steps.h"
#include "cairn/rank/rank.h"

namespace cairn {
namespace {

Result<std::unique_ptr<Rank>> join_leader(const WorkerConnector::Options& options, Rank::Options rank) {
  return options.leader != nullptr ? Rank::join(*options.leader, std::move(rank))
                                   : Rank::connect(*options.address, std::move(rank));
}

}  // namespace

class WorkerConnector::Impl {
 public:
  Impl(std::vector<std::string> layers, std::unique_ptr<WorkerOperations> operations, std::unique_ptr<Rank> rank,
       const WorkerSteps::Options& options)
      : layers_(std::move(layers)),
        operations_(std::move(operations)),
        rank_(std::move(rank)),
        steps_(*rank_, *operations_, options) {
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      by_name_.emplace_back(layers_[i], i);
    }
    std::ranges::sort(by_name_);
  }

  [[nodiscard]] std::optional<std::uint32_t> layer(std::string_view name) const {
    const auto found = std::ranges::lower_bound(by_name_, name, {}, &std::pair<std::string_view, std::uint32_t>::first);
    return found != by_name_.end() && found->first == name ? std::optional(found->second) : std::nullopt;
  }
  [[nodiscard]] WorkerSteps& steps() { return steps_; }
  [[nodiscard]] const Rank& rank() const { return *rank_; }

 private:
  const std::vector<std::string> layers_;
  std::vector<std::pair<std::string_view, std::uint32_t>> by_name_;
  // The rank's thread calls it: outlives the rank.
  const std::unique_ptr<WorkerOperations> operations_;
  const std::unique_ptr<Rank> rank_;
  WorkerSteps steps_;
};

Result<std::unique_ptr<WorkerConnector>> WorkerConnector::make(std::vector<KvGroup> groups,
                                                               std::vector<std::string> layers, Options options) {
  if (options.address.has_value() == (options.leader != nullptr)) {
    return fail(ErrorCode::kInvalidArgument,
                "give either the address of the leader or, if it is in this process, the leader itself");
  }
  CAIRN_TRY_ASSIGN(LayoutGroups device, make_kv_groups(groups, layers));
  const WorkerSteps::Options steps = {.layers = static_cast<std::uint32_t>(layers.size()),
                                      .blocks = device.layouts().front()->blocks(),
                                      .clock = options.clock,
                                      .fence_limit = limited(options.fence_limit),
                                      .layer_limit = limited(options.layer_limit),
                                      .answer_limit = limited(options.answer_limit)};
  auto operations = std::make_unique<WorkerOperations>(*options.clock);
  const auto receive = [to = operations.get()](const LeaderId& leader, std::span<const std::byte> message) {
    to->receive(leader, message);
  };
  CAIRN_TRY_ASSIGN(std::unique_ptr<Rank> worker, join_leader(options, {.rank = options.rank,
                                                                       .ranks = options.ranks,
                                                                       .first_layer = options.first_layer,
                                                                       .device = std::move(device),
                                                                       .secret = std::move(options.secret),
                                                                       .clock = options.clock,
                                                                       .around = std::move(options.around),
                                                                       .on_broadcast = receive,
                                                                       .first_connection = options.first_connection}));
  return std::unique_ptr<WorkerConnector>(
      new WorkerConnector(std::make_unique<Impl>(std::move(layers), std::move(operations), std::move(worker), steps)));
}

WorkerConnector::WorkerConnector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerConnector::~WorkerConnector() = default;

std::optional<std::uint32_t> WorkerConnector::layer(std::string_view name) const { return impl_->layer(name); }
Status WorkerConnector::bind(std::span<const std::byte> metadata) { return impl_->steps().bind(metadata); }
Status WorkerConnector::start_load(StepEventPtr after) { return impl_->steps().start_load(std::move(after)); }
Status WorkerConnector::wait_for_layer(std::uint32_t layer) { return impl_->steps().wait_for_layer(layer); }
Status WorkerConnector::save_layer(std::uint32_t layer, StepEventPtr after) {
  return impl_->steps().save_layer(layer, std::move(after));
}
Status WorkerConnector::save_step(StepEventPtr after) { return impl_->steps().save_step(std::move(after)); }
WorkerOutcomes WorkerConnector::take_outcomes() { return impl_->steps().take_outcomes(); }
RankState WorkerConnector::state() const { return impl_->rank().state(); }

}  // namespace cairn
