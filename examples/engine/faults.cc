#include "examples/engine/faults.h"

#include <chrono>
#include <string>
#include <utility>

#include "cairn/transfer/fault_executor.h"

namespace cairn::engine {
namespace {

// One executor, shared by the two that put faults around it.
class SharedExecutor final : public TransferExecutor {
 public:
  explicit SharedExecutor(std::shared_ptr<TransferExecutor> inside) : inside_(std::move(inside)) {}

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override { return inside_->submit(std::move(transfer)); }
  void cancel(TransferId transfer) override { inside_->cancel(transfer); }
  void check_deadlines() override { inside_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_->load(); }
  [[nodiscard]] std::string describe() const override { return inside_->describe(); }

 private:
  std::shared_ptr<TransferExecutor> inside_;
};

// Other faults for copies to the device than for those away from it. A checksum is made of what a copy away from the
// device brought, so what changes on that way is what was saved; what changes behind it is found by the next copy.
class FaultyExecutor final : public TransferExecutor {
 public:
  FaultyExecutor(std::shared_ptr<TransferExecutor> inside, double share, std::uint64_t seed)
      : to_device_(steady_clock(), std::make_unique<SharedExecutor>(inside),
                   faults(share, seed, Fault::kCorruptInFlight)),
        away_(steady_clock(), std::make_unique<SharedExecutor>(inside), faults(share, seed + 1, Fault::kCorrupt)) {}

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    // The engine's memory is somebody else's to Cairn.
    const bool to_device = transfer.plan->destination().regions().front()->is_external();
    Result<TransferId> id = (to_device ? to_device_ : away_).submit(std::move(transfer));
    if (!id) {
      return id;
    }
    return TransferId{static_cast<std::uint64_t>(*id) * 2 + (to_device ? 1 : 0)};
  }
  void cancel(TransferId transfer) override {
    const auto number = static_cast<std::uint64_t>(transfer);
    (number % 2 == 1 ? to_device_ : away_).cancel(TransferId{number / 2});
  }
  void check_deadlines() override {
    to_device_.check_deadlines();
    away_.check_deadlines();
  }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return away_.can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override {
    const ExecutorLoad one = to_device_.load();
    const ExecutorLoad other = away_.load();
    return {one.transfers + other.transfers, one.blocks + other.blocks, one.limit};
  }
  [[nodiscard]] std::string describe() const override { return away_.describe(); }

 private:
  static FaultOptions faults(double share, std::uint64_t seed, Fault wrong_bytes) {
    FaultOptions options{.seed = seed, .delay = std::chrono::milliseconds(2)};
    for (const Fault fault : {Fault::kFail, Fault::kShort, Fault::kDelay, wrong_bytes}) {
      options.rules.push_back({.fault = fault, .chance = share / 4});
    }
    return options;
  }

  FaultExecutor to_device_;
  FaultExecutor away_;
};

}  // namespace

std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> faulty_copies(
    double share, std::uint64_t seed) {
  return [share, seed](ExecutorKind, std::unique_ptr<TransferExecutor> inside) {
    return std::make_unique<FaultyExecutor>(std::move(inside), share, seed);
  };
}

}  // namespace cairn::engine
