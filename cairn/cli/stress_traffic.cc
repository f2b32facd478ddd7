#include "cairn/cli/stress_traffic.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::cli {

namespace {

// Runs of blocks that a thread holds for a while, as running requests do.
constexpr std::size_t kHeld = 3;
// Prefixes that sequences share.
constexpr std::uint32_t kPrompts = 8;
constexpr std::uint32_t kPromptBlocks = 3;

// A suspended disk tier is waited for, one minute in all.
constexpr std::chrono::milliseconds kBetweenTries(10);
constexpr int kMostTries = 6000;

bool is_disk_up(const KvBlockManager& manager) {
  const ManagerStatus status = manager.status();
  return std::ranges::all_of(status.tiers, [](const TierStatus& tier) { return tier.reading.is_up; });
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDU;
  return x ^ (x >> 33);
}

}  // namespace

// A sequence begins with one of a few shared prefixes. Sequences of low number are requested most.
std::vector<BlockKey> StressTraffic::some_keys(Worker& worker) const {
  const std::uint32_t sequence = std::min(worker.below(options_.sequences), worker.below(options_.sequences));
  const std::uint32_t length = 1 + worker.below(options_.longest);
  std::vector<BlockKey> keys;
  for (std::uint32_t i = 0; i < length; ++i) {
    const std::uint64_t name = i < kPromptBlocks ? sequence % kPrompts : kPrompts + sequence;
    const BlockHash block{mixed(options_.seed * 1'000'003 + name * 4099 + i)};
    keys.push_back(keys.empty() ? *BlockKey::root(sequence_hash_of_root(block)) : *keys.back().extend(block));
  }
  return keys;
}

void StressTraffic::run(std::uint32_t thread) {
  Worker worker{.random = std::mt19937_64(options_.seed * 7919 + thread)};
  while (!stopping_) {
    const std::uint32_t dice = options_.steady ? 0 : worker.below(100);
    if (dice < 88) {
      request(worker);
    } else if (dice < 94) {
      bring_up(worker);
    } else {
      disturb(worker);
    }
  }
}

std::optional<LoadOutcome> StressTraffic::load(Worker& worker, const std::vector<BlockKey>& keys) {
  OutcomeWaiter<LoadOutcome> waiter(manager_);
  LoadRequest request{.keys = keys, .done = waiter.done()};
  const std::uint32_t whim = options_.steady ? 100 : worker.below(100);
  if (whim < 3) {
    request.deadline = steady_clock().now() + std::chrono::microseconds(200);
  }
  const Result<LoadId> id = manager_.load(std::move(request));
  if (!id) {
    ++counts_.refused;
    return std::nullopt;
  }
  if (whim >= 3 && whim < 8) {
    manager_.cancel(*id);
    ++counts_.cancelled;
  }
  return *waiter.wait();
}

void StressTraffic::request(Worker& worker) {
  const std::vector<BlockKey> keys = some_keys(worker);
  ++counts_.requests;
  counts_.requested += keys.size();
  std::optional<LoadOutcome> loaded = load(worker, keys);
  std::uint32_t prefix = 0;
  if (loaded) {
    verify(loaded->blocks);
    prefix = loaded->prefix;
    if (prefix != loaded->blocks.size()) {
      report_wrong(str_cat("a load of ", prefix, " blocks gave ", loaded->blocks.size()));
    }
    worker.held.push_back(std::move(loaded->blocks));
  }
  compute(worker, keys, prefix);
  while (worker.held.size() > kHeld) {
    worker.held.erase(worker.held.begin() + worker.below(kHeld));
  }
}

// Fills and registers the blocks that are in no tier, as an engine would compute them.
void StressTraffic::compute(Worker& worker, const std::vector<BlockKey>& keys, std::uint32_t from) {
  const auto count = static_cast<std::uint32_t>(keys.size()) - from;
  if (count == 0) {
    return;
  }
  Result<MutableBlocks> blocks = manager_.device()->allocate(count);
  if (!blocks) {
    ++counts_.refused;
    worker.held.clear();
    return;
  }
  const std::span<const BlockKey> names = std::span(keys).subspan(from);
  if (const Status written = contents_.write(blocks->block_ids(), names); !written) {
    report_wrong(written.error().message);
    return;
  }
  const std::optional<SequenceHash> parent = from > 0 ? std::optional(keys[from - 1].sequence_hash()) : std::nullopt;
  auto complete = (*std::move(blocks)).complete({.keys = names, .parent = parent});
  const std::uint32_t priority = worker.below(10) == 0 ? worker.below(101) : Retention::kDefaultPriority;
  auto registered = (*std::move(complete)).register_blocks(Retention{.priority = priority});
  counts_.registered += count;
  worker.held.push_back(*std::move(registered));
}

Result<ImmutableBlocks> StressTraffic::onboard(ImmutableBlocks blocks) {
  OutcomeWaiter<ImmutableBlocks> waiter(manager_);
  CAIRN_TRY(manager_.onboard_blocks({.blocks = std::move(blocks), .done = waiter.done()}));
  return waiter.wait();
}

// Onboards blocks that are held in a lower tier, or prefetches blocks from disk.
void StressTraffic::bring_up(Worker& worker) {
  const std::vector<BlockKey> keys = some_keys(worker);
  if (worker.below(2) == 0) {
    OutcomeWaiter<std::uint32_t> prefetched(manager_);
    (void)manager_.prefetch({.keys = keys, .done = prefetched.done()});
    (void)prefetched.wait();
    return;
  }
  constexpr CacheLevel kBelow[] = {CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4};
  BlockPool* const pool = manager_.pool(kBelow[worker.below(manager_.remote() != nullptr ? 3 : 2)]);
  if (pool == nullptr) {
    return;
  }
  const Result<ImmutableBlocks> up = onboard(pool->scan(keys));
  if (up) {
    verify(*up);
  }
}

void StressTraffic::disturb(Worker& worker) {
  constexpr CacheLevel kTiers[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4};
  const std::uint32_t tiers = manager_.remote() != nullptr ? 4 : 3;
  const CacheLevel level = kTiers[worker.below(tiers)];
  const CacheLevel below = kTiers[1 + worker.below(tiers - 1)];
  switch (worker.below(12)) {
    case 0:
      (void)manager_.reset(level);
      ++counts_.resets;
      break;
    case 1:
    case 2:
    case 3:
      (void)manager_.reset(level, some_keys(worker));
      ++counts_.resets;
      break;
    case 4: {
      const CacheLevel from =
          below != CacheLevel::kG2 && manager_.host() != nullptr ? CacheLevel::kG2 : CacheLevel::kG1;
      if (manager_.pause(from, below)) {
        request(worker);
        (void)manager_.resume(from, below);
      }
      break;
    }
    case 5:
      if (const BlockPool* const host = manager_.host()) {
        (void)manager_.resize_host(1 + host->capacity() / 2 + worker.below((host->capacity() + 1) / 2));
      }
      break;
    default: {
      const Result<OffloadRequestId> id =
          manager_.offload(below, {.keys = some_keys(worker), .priority = worker.below(101)});
      if (id && worker.below(3) == 0) {
        manager_.cancel(below, *id);
      }
    }
  }
}

void StressTraffic::verify(const ImmutableBlocks& blocks) {
  const Result<std::optional<std::string>> wrong = contents_.find_wrong(blocks);
  if (!wrong) {
    report_wrong(wrong.error().message);
  } else if (*wrong) {
    report_wrong(**wrong);
  } else {
    counts_.verified += blocks.size();
  }
}

Result<StressTraffic::DiskCheck> StressTraffic::verify_disk() {
  DiskCheck check;
  BlockPool& disk = *manager_.disk();
  const std::uint32_t step = std::max<std::uint32_t>(1, std::min<std::uint32_t>(64, manager_.device()->capacity() / 2));
  std::vector<ResidentBlock> resident;
  for (std::uint32_t block_id = 0; block_id < disk.capacity() && first_wrong().empty();) {
    resident.clear();
    block_id = disk.list_resident(block_id, step, resident);
    std::vector<BlockKey> keys;
    std::transform(resident.begin(), resident.end(), std::back_inserter(keys),
                   [](const ResidentBlock& block) { return block.key; });
    // A disk tier with many damaged blocks is suspended and tried again; each time it has fewer of them.
    for (int tries = 0;; ++tries) {
      ImmutableBlocks there = disk.scan(keys);
      if (there.empty()) {
        break;
      }
      const Result<ImmutableBlocks> up = onboard(std::move(there));
      if (up) {
        verify(*up);
        check.blocks += up->size();
        for (std::uint32_t i = 0; i < up->size(); ++i) {
          std::erase(keys, up->key(i));
        }
      } else if (!disk.scan(keys).empty() && (tries == kMostTries || is_disk_up(manager_))) {
        return Unexpected(Error(up.error()));
      }
      if (!up || up->empty()) {
        std::this_thread::sleep_for(kBetweenTries);
      }
    }
    check.refused += keys.size();
  }
  return check;
}

void StressTraffic::report_wrong(const std::string& what) {
  {
    const MutexLock lock(mutex_);
    if (first_wrong_.empty()) {
      first_wrong_ = what;
    }
  }
  stop();
}

std::string StressTraffic::first_wrong() const {
  const MutexLock lock(mutex_);
  return first_wrong_;
}

}  // namespace cairn::cli
