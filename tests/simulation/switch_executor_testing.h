// SwitchExecutor: a simulated device whose faults can be switched off, with separate faults for writing and for reading.
//
// It has three simulated executors: one without faults, one with the faults of copies into files, one with those of copies
// into memory. Each keeps the promises of an executor for its own transfers.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/simulated_executor_testing.h"

namespace cairn::testing {

class SwitchExecutor final : public TransferExecutor {
 public:
  SwitchExecutor(const Clock& clock, const SimulatedExecutor::Options& speed, const FaultOptions& into_files,
                 const FaultOptions& into_memory)
      : plain_(clock, speed), into_files_(clock, speed, into_files), into_memory_(clock, speed, into_memory) {}

  void set_faults(bool on) { faults_on_ = on; }
  // `hook` is called before and after each callback of a copy, as if another thread ran there. Set it before the first
  // copy.
  void between(std::function<void()> hook) { between_ = std::move(hook); }
  // Copies that hang continue.
  void release() {
    into_files_.faulty->release();
    into_memory_.faulty->release();
  }

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    const std::uint64_t lane = !faults_on_ ? 0 : transfer.plan->destination().kind() == MemoryKind::kFile ? 1 : 2;
    transfer.done = [this, done = std::move(transfer.done)](TransferOutcome&& outcome) {
      between_();
      done(std::move(outcome));
      between_();
    };
    transfer.settled = [this, settled = std::move(transfer.settled)] {
      between_();
      settled();
    };
    Result<TransferId> id = executor(lane).submit(std::move(transfer));
    // Each lane numbers its own from 1.
    return id ? Result<TransferId>(TransferId{static_cast<std::uint64_t>(*id) * kLanes + lane}) : std::move(id);
  }
  void cancel(TransferId transfer) override {
    const auto number = static_cast<std::uint64_t>(transfer);
    executor(number % kLanes).cancel(TransferId{number / kLanes});
  }
  void check_deadlines() override {
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
      executor(lane).check_deadlines();
    }
  }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return plain_.can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return plain_.load(); }
  [[nodiscard]] std::string describe() const override { return "simulated, with faults"; }

  // Whether there was anything to do.
  bool run() {
    bool any = plain_.run();
    for (Lane* lane : {&into_files_, &into_memory_}) {
      // Copies that ended before a deadline are reported before the others expire.
      any |= lane->inside->run();
      lane->faulty->check_deadlines();
      any |= lane->inside->run();
      any |= lane->faulty->run_callbacks();
    }
    return any;
  }
  [[nodiscard]] std::optional<TimePoint> next_time() const {
    std::optional<TimePoint> next = plain_.next_time();
    for (const Lane* lane : {&into_files_, &into_memory_}) {
      const std::optional<TimePoint> time = lane->inside->next_time();
      next = next && time ? std::min(next, time) : next ? next : time;
    }
    return next;
  }

 private:
  static constexpr std::uint64_t kLanes = 3;
  struct Lane {
    Lane(const Clock& clock, const SimulatedExecutor::Options& speed, FaultOptions faults) {
      auto made = std::make_unique<SimulatedExecutor>(clock, speed);
      inside = made.get();
      faults.callbacks = TransferLedger::Callbacks::kOnRequest;
      faulty = std::make_unique<FaultExecutor>(clock, std::move(made), std::move(faults));
    }
    SimulatedExecutor* inside;
    std::unique_ptr<FaultExecutor> faulty;
  };
  [[nodiscard]] TransferExecutor& executor(std::uint64_t lane) {
    return lane == 0 ? static_cast<TransferExecutor&>(plain_) : lane == 1 ? *into_files_.faulty : *into_memory_.faulty;
  }

  SimulatedExecutor plain_;
  Lane into_files_;
  Lane into_memory_;
  bool faults_on_ = true;
  std::function<void()> between_ = [] {};
};

}  // namespace cairn::testing
