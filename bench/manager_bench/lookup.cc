// locate() over three tiers, beside count_prefix() of one pool.
#include <algorithm>
#include <functional>
#include <random>

#include "bench/manager_bench/parts.h"
#include "cairn/base/str_cat.h"

namespace cairn::bench {

namespace {

constexpr std::uint32_t kChain = 128;
constexpr std::uint32_t kCalls = 500;
constexpr CacheLevel kLevels[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};

// Chains whose keys are in another tier every `run` keys.
class Spread {
 public:
  Spread(std::uint64_t name, std::uint32_t count, std::uint32_t run) : run_(run) {
    for (std::uint32_t i = 0; i < count; ++i) {
      chains_.push_back(chain(name + i, kChain));
    }
  }
  void store(const KvBlockManager& manager) const {
    for (const Keys& keys : chains_) {
      for (std::uint32_t first = 0; first < kChain; first += run_) {
        const auto end = keys.begin() + std::min(kChain, first + run_);
        cache(*manager.pool(kLevels[first / run_ % 3]), Keys(keys.begin() + first, end));
      }
    }
  }
  [[nodiscard]] const std::vector<Keys>& chains() const { return chains_; }

 private:
  std::uint32_t run_;
  std::vector<Keys> chains_;
};

// Chains that are all in one tier.
std::vector<Keys> store_chains(BlockPool& pool, std::uint64_t name, std::uint32_t count) {
  std::vector<Keys> chains;
  for (std::uint32_t i = 0; i < count; ++i) {
    chains.push_back(chain(name + i, kChain));
    cache(pool, chains.back());
  }
  return chains;
}

// Nanoseconds per call, over random chains; each call must find its whole chain.
double time_calls(const std::vector<Keys>& chains, std::mt19937& random,
                  const std::function<std::uint32_t(const Keys&)>& look) {
  std::vector<const Keys*> picked;
  for (std::uint32_t i = 0; i < kCalls; ++i) {
    picked.push_back(&chains[random() % chains.size()]);
  }
  std::uint64_t found = 0;
  // Counts processor time: a lookup never waits, and on a shared machine wall-clock time would include the work of
  // others.
  const double start = cpu_seconds_now();
  for (const Keys* keys : picked) {
    found += look(*keys);
  }
  const double took = cpu_seconds_now() - start;
  if (found != std::uint64_t{kCalls} * kChain) {
    stop("a lookup missed resident blocks");
  }
  return took * 1e9 / kCalls;
}

}  // namespace

void measure_lookup(const Settings& settings, Report& report) {
  const ScratchFile file(settings.file);
  ManagerConfig config = small_blocks();
  Settings in_memory = settings;
  in_memory.gpu = false;
  add_device(config, in_memory, settings.blocks);
  config.host.blocks = settings.blocks;
  config.disk.blocks = settings.blocks;
  config.disk.path = file.path();
  const KvBlockManager manager = must(KvBlockManager::make(config));
  // One third of each tier holds chains of its own, one third the chains of each spread.
  const std::uint32_t own = settings.blocks / 3 / kChain;
  const std::vector<Keys> on_device = store_chains(*manager.device(), 1'000'000, own);
  static_cast<void>(store_chains(*manager.host(), 2'000'000, own));
  const std::vector<Keys> on_disk = store_chains(*manager.disk(), 3'000'000, own);
  const Spread in_three(4'000'000, settings.blocks / 3 / 43, 43);
  const Spread in_sixteen(5'000'000, settings.blocks / 3 / 48, 8);
  in_three.store(manager);
  in_sixteen.store(manager);

  const auto locate = [&](const Keys& keys) { return manager.locate(keys).blocks(); };
  const auto count = [&](const Keys& keys) { return manager.device()->count_prefix(keys); };
  const auto match = [&](const Keys& keys) { return manager.device()->match_prefix(keys).size(); };
  std::mt19937 random(1);
  Samples counted;
  Samples matched;
  Samples third;
  Samples three;
  Samples sixteen;
  for (std::uint32_t round = 0; round < 4 * settings.rounds; ++round) {
    counted.add(time_calls(on_device, random, count));
    third.add(time_calls(on_disk, random, locate));
    three.add(time_calls(in_three.chains(), random, locate));
    sixteen.add(time_calls(in_sixteen.chains(), random, locate));
    matched.add(time_calls(on_device, random, match));
  }
  const auto row = [&](const char* name, double most, const Samples& ours) {
    report.add(at_most(most, {.name = name, .unit = "ns", .ours = ours, .beside = "count_prefix()", .limit = counted}));
  };
  report.say(str_cat("lookup of ", kChain, " keys, ", settings.blocks, " blocks per tier, per call"));
  row("  locate(), all in the third tier", 3, third);
  row("  locate(), 43 in each tier", 3, three);
  row("  locate(), another tier every 8 keys", 4, sixteen);
  report.add({.name = "  match_prefix() and release, one pool", .unit = "ns", .ours = matched});
}

}  // namespace cairn::bench
