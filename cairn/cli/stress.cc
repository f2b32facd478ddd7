#include "cairn/cli/stress.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <ostream>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/stress_contents.h"
#include "cairn/cli/stress_report.h"
#include "cairn/cli/stress_traffic.h"
#include "cairn/cli/text.h"
#include "cairn/transfer/fault_executor.h"

namespace cairn::cli {

namespace {

using std::chrono::duration;

// Injects faults into all executors of a run.
class Faults {
 public:
  Faults(double share, std::uint64_t seed) : share_(share), seed_(seed) {}

  [[nodiscard]] std::unique_ptr<TransferExecutor> around(std::unique_ptr<TransferExecutor> executor) {
    FaultOptions options{.seed = seed_++, .delay = std::chrono::milliseconds(5)};
    for (const Fault fault : {Fault::kFail, Fault::kShort, Fault::kDelay, Fault::kHang}) {
      options.rules.push_back({.fault = fault, .chance = fault == Fault::kHang ? share_ / 10 : share_});
    }
    auto made = std::make_unique<FaultExecutor>(steady_clock(), std::move(executor), std::move(options));
    executors_.push_back(made.get());
    return made;
  }
  // Lets copies that hang continue.
  void release() {
    for (FaultExecutor* executor : executors_) {
      executor->release();
    }
  }

 private:
  const double share_;
  std::uint64_t seed_;
  std::vector<FaultExecutor*> executors_;  // owned by the manager
};

// A wait that another thread can end.
class Pause {
 public:
  void end() {
    const MutexLock lock(mutex_);
    ended_ = true;
    over_.notify_all();
  }
  // Whether end() was called.
  bool wait_for(duration<double> time) {
    const MutexLock lock(mutex_);
    return over_.wait_for(mutex_, time, [this]() CAIRN_REQUIRES(mutex_) { return ended_; });
  }

 private:
  Mutex mutex_{LockRank::kManager};
  std::condition_variable_any over_;
  bool ended_ CAIRN_GUARDED_BY(mutex_) = false;
};

// Blocks in use or quarantined, except those that a resize withholds.
std::uint64_t blocks_in_use(const KvBlockManager& manager) {
  std::uint64_t blocks = 0;
  for (const TierStatus& tier : manager.status().tiers) {
    blocks += tier.counts.active + tier.counts.quarantined - tier.withheld;
  }
  return blocks;
}

void run_traffic(const StressOptions& options, const StressStreams& streams, const KvBlockManager& manager,
                 StressTraffic& traffic, Faults* faults, StressReport& report) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    threads.emplace_back([&traffic, i] { traffic.run(i); });
  }
  constexpr duration<double> kTick(0.1);
  const TimePoint began = steady_clock().now();
  StressProgress progress(manager, traffic);
  Pause pause;
  double shown = 0;
  while (!traffic.is_stopping() && !streams.stop) {
    const double passed = duration<double>(steady_clock().now() - began).count();
    if (passed >= options.seconds) {
      break;
    }
    if (report.resident_bytes_early == 0 && passed >= options.seconds / 10) {
      report.resident_bytes_early = resident_bytes();
    }
    if (passed - shown >= 1) {
      shown = passed;
      if (streams.log_is_a_terminal) {
        streams.log << progress.line(passed) << std::endl;
      }
      if (faults != nullptr) {
        faults->release();
      }
    }
    (void)pause.wait_for(std::min(kTick, duration<double>(options.seconds - passed)));
  }
  traffic.stop();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace

ManagerConfig stress_config() {
  ManagerConfig config;
  config.model = {.name = "stress", .layers = 4, .heads = 2, .head_size = 64, .element_type = "bf16"};
  config.device.blocks = 256;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = 1024;
  config.disk.blocks = 4096;
  return config;
}

Result<StressEnd> run_stress(const StressOptions& options, const StressStreams& streams) {
  if (!options.config.device.is_there()) {
    return fail(ErrorCode::kInvalidArgument, "stress needs a device tier; give device.blocks or device.size");
  }
  if (options.resume && !options.config.disk.is_there()) {
    return fail(ErrorCode::kInvalidArgument, "--resume needs a disk tier; give disk.path and disk.blocks or disk.size");
  }
  std::unique_ptr<Faults> faults;
  ManagerParts parts;
  if (options.faults > 0) {
    faults = std::make_unique<Faults>(options.faults, options.seed);
    // A store fails by itself: stop it, or kill it.
    parts.around = [&faults](ExecutorKind kind, std::unique_ptr<TransferExecutor> executor) {
      return kind == ExecutorKind::kStore ? std::move(executor) : faults->around(std::move(executor));
    };
  }
  CAIRN_TRY_ASSIGN(KvBlockManager manager, KvBlockManager::make(options.config, parts));
  CAIRN_TRY_ASSIGN(std::unique_ptr<StressContents> contents, StressContents::make(manager.layout(CacheLevel::kG1)));
  StressTraffic traffic(manager, options, *contents);
  StressReport report{.options = options, .recovered = {}};
  if (options.resume) {
    CAIRN_TRY_ASSIGN(StressTraffic::DiskCheck check, traffic.verify_disk());
    report.recovered = check;
    streams.log << "verified " << with_commas(check.blocks) << " blocks of the disk tier, "
                << with_commas(check.refused) << " of them damaged and not served" << std::endl;
  }
  const TimePoint began = steady_clock().now();
  if (options.seconds > 0 && traffic.first_wrong().empty()) {
    run_traffic(options, streams, manager, traffic, faults.get(), report);
  }
  report.seconds = duration<double>(steady_clock().now() - began).count();
  // Copies that begin while the manager drains may hang too, so they are released until nothing is left.
  const TimePoint give_up = steady_clock().now() + std::chrono::seconds(30);
  do {
    if (faults != nullptr) {
      faults->release();
    }
    report.drained = manager.drain(std::chrono::milliseconds(100)).has_value();
  } while (!report.drained && steady_clock().now() < give_up);
  report.leaked = blocks_in_use(manager);
  report.resident_bytes = resident_bytes();
  report.wrong = traffic.first_wrong();
  write_stress_report(report, manager, traffic.counts(), streams.out);
  if (!report.wrong.empty()) {
    return StressEnd::kWrongBytes;
  }
  return report.drained && report.leaked == 0 ? StressEnd::kGood : StressEnd::kLeaked;
}

}  // namespace cairn::cli
