// Allocation in a full pool whose victims are offloaded ahead of need, beside a manager without tiers below.
#include "bench/manager_bench/parts.h"
#include "cairn/base/str_cat.h"

namespace cairn::bench {

namespace {

constexpr std::uint32_t kBlocks = 65'536;
constexpr std::uint32_t kRun = 16;
constexpr std::uint32_t kSteps = 4096;  // per round

struct Latencies {
  Samples step;      // allocate, complete, register, release: microseconds
  Samples allocate;  // only the allocate of that
};

// Stores new sequences, so that every allocation evicts.
void churn(BlockPool& pool, std::uint64_t& name, Latencies* latencies) {
  std::vector<Keys> chains;
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    chains.push_back(chain(++name, kRun));
  }
  for (const Keys& keys : chains) {
    const double start = seconds_now();
    Result<MutableBlocks> blocks = pool.allocate(kRun);
    const double allocated = seconds_now();
    if (!blocks) {
      stop(blocks.error().to_string());
    }
    {
      auto complete = (*std::move(blocks)).complete({.keys = keys});
      const auto registered = (*std::move(complete)).register_blocks();
      if (!registered) {
        stop(registered.error().error.to_string());
      }
    }
    if (latencies != nullptr) {
      latencies->step.add((seconds_now() - start) * 1e6);
      latencies->allocate.add((allocated - start) * 1e6);
    }
  }
}

void measure_churn(const Settings& settings, PolicyKind policy, Report& report) {
  Settings in_memory = settings;
  in_memory.gpu = false;
  ManagerConfig config = small_blocks();
  config.device.policy = policy;
  add_device(config, in_memory, kBlocks);
  const KvBlockManager alone = must(KvBlockManager::make(config));
  config.host.blocks = kBlocks;
  config.offload_to_host.mode = OffloadMode::kAhead;
  const KvBlockManager tiered = must(KvBlockManager::make(config));

  std::uint64_t name = 10'000'000;
  Latencies with_tier;
  Latencies without;
  for (std::uint32_t round = 0; round < 2 * settings.rounds; ++round) {
    const bool warm = round > 2 * kBlocks / kRun / kSteps;  // both tiers are full
    churn(*tiered.device(), name, warm ? &with_tier : nullptr);
    churn(*alone.device(), name, warm ? &without : nullptr);
  }
  report.say(str_cat("allocate ", kRun, " blocks, register and release them, ", kBlocks, " blocks, offload ahead, ",
                     to_string(policy)));
  const auto row = [&](const char* what, double share, const Samples& ours, const Samples& limit, bool is_bar) {
    Samples tiers_value;
    tiers_value.add(ours.at(share));
    Samples alone_value;
    alone_value.add(limit.at(share));
    Row line{.name = what, .unit = "us", .ours = tiers_value, .beside = "no tier below", .limit = alone_value};
    report.add(is_bar ? at_most(2, std::move(line)) : std::move(line));
  };
  row("  all of it, p50", 0.5, with_tier.step, without.step, true);
  row("  all of it, p99", 0.99, with_tier.step, without.step, true);
  row("  allocate() alone, p50", 0.5, with_tier.allocate, without.allocate, false);
  row("  allocate() alone, p99", 0.99, with_tier.allocate, without.allocate, true);
  const OffloadStatus offload = tiered.status().offload.front();
  report.say(str_cat("  ", offload.copied, " blocks were copied of ", tiered.device()->stats().evicted, " evicted"));
}

}  // namespace

void measure_churn(const Settings& settings, Report& report) {
  for (const PolicyKind policy : {PolicyKind::kAdaptive, PolicyKind::kLineageTick}) {
    measure_churn(settings, policy, report);
  }
}

}  // namespace cairn::bench
