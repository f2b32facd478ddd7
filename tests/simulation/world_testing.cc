#include "tests/simulation/world_testing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/tier/disk_file.h"

namespace cairn::testing {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr CacheLevel kLevels[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};
// The possible contents of a key's block: an engine that computes it again may get different bits.
constexpr std::uint32_t kVersions = 2;

std::uint64_t pattern_of(const BlockKey& key, std::uint32_t version) {
  return key.high_word() * 0x9E3779B97F4A7C15U + key.low_word() * 3 + version;
}

}  // namespace

WorldCounts& WorldCounts::operator+=(const WorldCounts& other) {
  loads += other.loads;
  blocks_served += other.blocks_served;
  from_below += other.from_below;
  copied_down += other.copied_down;
  mismatches += other.mismatches;
  expired += other.expired;
  restarts += other.restarts;
  tiers_out += other.tiers_out;
  files_damaged += other.files_damaged;
  scrubbed += other.scrubbed;
  kills += other.kills;
  fences += other.fences;
  fences_in_copies += other.fences_in_copies;
  fenced_blocks += other.fenced_blocks;
  fenced_loads += other.fenced_loads;
  fenced_in_use += other.fenced_in_use;
  fenced_private += other.fenced_private;
  return *this;
}

World::World(const WorldOptions& options) : options_(options), random_(options.seed * 0x9E3779B97F4A7C15U + 1) {
  draw_config();
  draw_faults();
  std::error_code none;
  std::filesystem::remove(options.folder + "/blocks.damaged", none);  // of another world
}

World::~World() {
  begun_.clear();
  held_.clear();
  manager_.reset();
}

void World::say(const std::string& what) {
  if (options_.log != nullptr) {
    *options_.log << step_ << " @" << clock_.now().count() / 1000 << "us " << what << "\n";
  }
}

void World::wrong(const std::string& what) {
  if (failure_.empty()) {
    failure_ = str_cat("step ", step_, ": ", what);
    say("WRONG: " + what);
  }
}

void World::draw_config() {
  config_.block_size = 4;
  config_.model = {.name = "simulated", .layers = 2, .heads = 1, .head_size = 8, .element_type = "int8"};
  config_.device.blocks = 4 + below(20);
  config_.device.memory = DeviceMemory::kSystem;
  config_.device.layout = kAllArrangements[below(std::size(kAllArrangements))];
  config_.host.blocks = below(5) == 0 ? 0 : 6 + below(40);
  config_.disk.blocks = below(5) == 0 ? 0 : 8 + below(80);
  if (config_.disk.blocks != 0) {
    config_.disk.path = options_.folder + "/blocks";
    config_.disk.direct = false;
    config_.disk.scrub_rate = below(2) == 0 ? 10'000ULL << below(12) : 0;
  }
  for (TierConfig* tier : {static_cast<TierConfig*>(&config_.device), static_cast<TierConfig*>(&config_.host),
                           static_cast<TierConfig*>(&config_.disk)}) {
    tier->policy = kAllPolicies[below(std::size(kAllPolicies))];
    tier->leaves_first = below(2) == 0;
  }
  for (OffloadOptions* offload : {&config_.offload_to_host, &config_.offload_to_disk}) {
    constexpr OffloadMode kModes[] = {OffloadMode::kAhead, OffloadMode::kOnRegistration, OffloadMode::kAhead,
                                      OffloadMode::kOff};
    offload->mode = kModes[below(4)];
    offload->low_water = 0.05 + 0.05 * below(6);
    offload->batch = 1 + below(8);
    offload->in_flight = 1 + below(3);
    offload->queue = 4 + below(60);
    offload->deadline = milliseconds(1 + below(50));
    offload->least_uses = below(4) == 0 ? 2 : 1;
  }
  config_.onboard.through_host = below(2) == 0;
  config_.onboard.deadline = milliseconds(5 + below(50));
  config_.onboard.loads = 2 + below(16);
  config_.onboard.prefill_tokens_per_second = below(3) == 0 ? 20'000 : 0;
  config_.health = {.failures = 1 + below(4), .first_wait = milliseconds(5), .longest_wait = milliseconds(40)};
  config_.shutdown = milliseconds(100);
  config_.event_log = 4096;
}

void World::draw_faults() {
  faults_.seed = options_.seed + 17;
  faults_.delay = microseconds(200 + below(4000));
  const double share = below(3) == 0 ? 0 : 0.02 * below(6);
  for (const Fault fault : {Fault::kFail, Fault::kShort, Fault::kDelay, Fault::kHang}) {
    faults_.rules.push_back({.fault = fault, .chance = share});
  }
  host_speed_ = {.bytes_per_second = 1e6 * (1 + below(50)), .latency = microseconds(below(20)), .limit = 2 + below(20)};
  file_speed_ = {
      .bytes_per_second = 1e6 * (1 + below(10)), .latency = microseconds(below(200)), .limit = 2 + below(20)};
}

void World::open() {
  ManagerParts parts;
  parts.clock = &clock_;
  parts.own_thread = false;
  parts.seed = KeySeed::from(options_.seed);
  parts.executor = [this](ExecutorKind kind) {
    FaultOptions into_files = faults_;
    FaultOptions into_memory = faults_;
    if (kind == ExecutorKind::kFile && lies_) {
      // Bits that flip in a file are found when it is read, bits that flip in a read at once. (Bits that flip in memory
      // that was never copied cannot be found.)
      into_files.rules.push_back({.fault = Fault::kCorrupt, .chance = 0.25});
      into_memory.rules.push_back({.fault = Fault::kCorruptInFlight, .chance = 0.1});
    }
    auto made = std::make_unique<SwitchExecutor>(clock_, kind == ExecutorKind::kFile ? file_speed_ : host_speed_,
                                                 into_files, into_memory);
    made->between([this] {
      if (fence_chance_ > 0 && chance(fence_chance_) && manager_ && !closing_ && !is_fencing_) {
        ++counts_.fences_in_copies;
        fence();
      }
    });
    executors_.push_back(made.get());
    return made;
  };
  parts.on_incident = [this](const Incident& incident) {
    say(str_cat("incident: ", to_string(incident.kind), ", ", to_string(incident.level), ": ", incident.text));
    counts_.tiers_out += incident.kind == Incident::Kind::kTierOut ? 1 : 0;
    counts_.files_damaged += incident.kind == Incident::Kind::kDamagedFile ? 1 : 0;
  };
  Result<KvBlockManager> made = KvBlockManager::make(config_, parts);
  if (!made) {
    wrong("cannot open: " + made.error().message);
    return;
  }
  manager_.emplace(*std::move(made));
}

// Damages the file while no manager has it open: the next manager must start all the same.
void World::damage_file() {
  if (config_.disk.blocks == 0 || chance(0.5)) {
    return;
  }
  const std::uint64_t size = std::filesystem::file_size(config_.disk.path);
  const std::uint32_t way = below(3);
  if (way == 0) {
    const std::uint64_t left = random_() % size;
    say(str_cat("the file is cut off at ", left));
    std::filesystem::resize_file(config_.disk.path, left);
    return;
  }
  std::fstream file(config_.disk.path, std::ios::in | std::ios::out | std::ios::binary);
  if (way == 1) {
    say("both superblocks are lost");
    file << std::string(2 * 4096, '#');
    return;
  }
  say("some blocks of the file are damaged");
  const std::uint64_t step = DiskFile::kAlignment;  // no block is larger here
  const std::uint64_t blocks_at = size - config_.disk.blocks * step;
  for (std::uint32_t i = 0, count = 1 + below(config_.disk.blocks); i < count; ++i) {
    const std::uint64_t at = blocks_at + below(config_.disk.blocks) * step;
    file.seekp(static_cast<std::streamoff>(at + random_() % config_.shape().block_bytes()));
    file.put('#');
  }
}

void World::close() {
  if (const std::optional<ScrubStatus> scrub = manager_->status().scrub) {
    counts_.scrubbed += scrub->damaged;
  }
  for (const LinkStatus& link : manager_->status().links) {
    counts_.mismatches += link.totals.mismatched;
    counts_.expired += link.totals.expired;
    counts_.copied_down += index_of(link.from) < index_of(link.to) ? link.totals.blocks : 0;
  }
  begun_.clear();
  held_.clear();
  paused_.clear();
  closing_ = true;
  manager_.reset();
  closing_ = false;
  executors_.clear();
  for (const std::shared_ptr<Load>& load : loads_) {
    if (!load->ended) {
      wrong("a load did not end with its manager");
    }
  }
  loads_.clear();
}

std::vector<BlockKey> World::some_keys() {
  const std::uint32_t sequence = std::min(below(12), below(12));
  std::vector<BlockKey> keys;
  for (std::uint32_t i = 0, length = 1 + below(8); i < length; ++i) {
    const std::uint64_t name = i < 2 ? sequence % 3 : 100 + sequence;
    const BlockHash block{(name + 1) * 0x9E3779B97F4A7C15U + i};
    keys.push_back(keys.empty() ? *BlockKey::root(sequence_hash_of_root(block)) : *keys.back().extend(block));
  }
  return keys;
}

void World::start_load() {
  const auto load = std::make_shared<Load>();
  load->keys = some_keys();
  load->deadline =
      clock_.now() + (chance(0.2) ? Duration(microseconds(below(500))) : Duration(milliseconds(1 + below(60))));
  ++counts_.loads;
  LoadRequest request{.keys = load->keys, .deadline = load->deadline, .most = below(4) == 0 ? 1 + below(4) : 0};
  request.weigh = below(2) == 0;
  request.done = [this, load](LoadOutcome&& result) {
    if (load->ended) {
      wrong("a load ended twice");
    }
    load->ended = true;
    counts_.blocks_served += result.blocks.size();
    counts_.from_below += result.from[1] + result.from[2];
    if (result.prefix != result.blocks.size() || result.prefix > load->keys.size()) {
      wrong(str_cat("a prefix of ", result.prefix, " with ", result.blocks.size(), " blocks"));
    }
    for (std::uint32_t i = 0; i < result.blocks.size(); ++i) {
      if (result.blocks.key(i) != load->keys[i]) {
        wrong(str_cat("block ", i, " of a load is another one's"));
      }
    }
    check_blocks(result.blocks, "a load");
    say(str_cat("load ended: ", result.prefix, " of ", load->keys.size(), " ", result.why));
    if (!closing_) {
      held_.push_back(std::move(result.blocks));
    }
  };
  const Result<LoadId> id = manager_->load(std::move(request));
  if (!id) {
    say("load refused: " + id.error().message);
    return;
  }
  loads_.push_back(load);
  if (chance(0.15)) {
    manager_->cancel(*id);
  }
}

void World::compute(const std::vector<BlockKey>& keys, std::uint32_t from) {
  const std::span<const BlockKey> names = std::span(keys).subspan(from);
  Result<MutableBlocks> blocks = manager_->device()->allocate(static_cast<std::uint32_t>(names.size()));
  if (!blocks) {
    return;
  }
  std::vector<std::uint32_t> versions;
  for (std::size_t i = 0; i < names.size(); ++i) {
    versions.push_back(fences_ * kVersions + below(kVersions));
    write_pattern(*manager_->layout(CacheLevel::kG1), index_of(blocks->block_ids()[i]),
                  pattern_of(names[i], versions[i]));
  }
  const std::optional<SequenceHash> parent = from > 0 ? std::optional(keys[from - 1].sequence_hash()) : std::nullopt;
  auto complete = (*std::move(blocks)).complete({.keys = names, .parent = parent});
  begun_.push_back({.blocks = *std::move(complete), .versions = std::move(versions), .fences = fences_});
}

// Blocks from before a fence are visible to their holder only.
void World::register_begun() {
  for (Begun& begun : begun_) {
    for (std::uint32_t i = 0; i < begun.blocks.size() && begun.fences == fences_; ++i) {
      versions_[begun.blocks.key(i)].insert(begun.versions[i]);
    }
    counts_.fenced_private += begun.fences != fences_ ? 1 : 0;
    held_.push_back(*std::move(begun.blocks).register_blocks(Retention{.priority = below(101)}));
  }
  begun_.clear();
}

void World::fence() {
  is_fencing_ = true;
  const bool has_new_weights = below(2) == 0;
  say(has_new_weights ? "new weights" : "reset of everything");
  // Loads that end during the reset may have bytes of before or after; from here on, no bytes of before.
  const Result<ResetReport> report =
      has_new_weights ? manager_->invalidate(manager_->weights_generation() + 1 + below(3)) : manager_->reset_all();
  is_fencing_ = false;
  ++counts_.fences;
  if (!report) {
    wrong("a reset failed: " + report.error().message);
    return;
  }
  counts_.fenced_blocks += report->copies;
  counts_.fenced_loads += report->loads;
  counts_.fenced_in_use += report->in_use;
  config_.model.weights_generation = manager_->weights_generation();
  versions_.clear();
  ++fences_;
  for (const CacheLevel level : kLevels) {
    if (!resident(level).empty()) {
      wrong(str_cat(to_string(level), " holds blocks right after a reset of everything"));
    }
  }
}

// Keeps the file as it is at this moment, whatever the manager still writes.
void World::kill() {
  say("kill");
  ++counts_.kills;
  const std::string path = options_.folder + "/blocks";
  const bool has_file = config_.disk.blocks != 0;
  if (has_file) {
    std::filesystem::copy_file(path, path + ".kept", std::filesystem::copy_options::overwrite_existing);
  }
  close();
  if (has_file) {
    std::filesystem::rename(path + ".kept", path);
  }
  open();
}

void World::drop_some() {
  while (!held_.empty() && chance(0.7)) {
    held_.erase(held_.begin() + below(static_cast<std::uint32_t>(held_.size())));
  }
}

void World::onboard() {
  if (below(2) == 0) {
    (void)manager_->prefetch({.keys = some_keys()});
    return;
  }
  if (BlockPool* const pool = manager_->pool(kLevels[1 + below(2)])) {
    (void)manager_->onboard_blocks({.blocks = pool->scan(some_keys())});
  }
}

void World::offload() {
  const CacheLevel into = kLevels[1 + below(2)];
  const auto count = std::make_shared<int>(0);
  OffloadRequest request{.keys = some_keys(), .priority = below(101)};
  request.deadline = clock_.now() + milliseconds(1 + below(40));
  request.done = [this, count](OffloadOutcome&&) {
    if (++*count > 1) {
      wrong("an offload request was answered twice");
    }
  };
  const Result<OffloadRequestId> id = manager_->offload(into, std::move(request));
  if (id && chance(0.3)) {
    manager_->cancel(into, *id);
  }
}

void World::control() {
  const CacheLevel level = kLevels[below(3)];
  switch (below(11)) {
    case 0:
      say(str_cat("reset ", to_string(level)));
      (void)manager_->reset(level);
      if (!resident(level).empty()) {
        wrong(str_cat(to_string(level), " holds blocks right after it was reset"));
      }
      break;
    case 7:
    case 8:
      fence();
      if (below(4) == 0) {
        kill();
      }
      break;
    case 9:
      if (below(2) == 0) {
        kill();
      }
      break;
    case 1:
    case 2:
      (void)manager_->reset(level, some_keys());
      break;
    case 3:
    case 4: {
      const CacheLevel from = kLevels[below(3)];
      if (manager_->pause(from, level)) {
        say(str_cat("pause ", to_string(from), "-", to_string(level)));
        paused_.emplace_back(from, level);
      }
      break;
    }
    case 5:
      if (const BlockPool* const host = manager_->host()) {
        (void)manager_->resize_host(1 + below(host->capacity()));
      }
      break;
    case 6:
      for (SwitchExecutor* executor : executors_) {
        executor->release();
      }
      break;
    default:
      if (below(4) == 0) {
        say("restart");
        ++counts_.restarts;
        close();
        damage_file();
        open();
      }
  }
  if (below(2) == 0 && !paused_.empty()) {
    (void)manager_->resume(paused_.back().first, paused_.back().second);
    paused_.pop_back();
  }
}

void World::settle() {
  for (bool more = true; more;) {
    more = false;
    for (SwitchExecutor* executor : executors_) {
      more |= executor->run();
    }
    more |= manager_->pump();
  }
}

void World::let_time_pass(Duration by) {
  const TimePoint end = clock_.now() + by;
  settle();
  while (clock_.now() < end) {
    TimePoint next = std::min(end, manager_->next_time().value_or(end));
    for (const SwitchExecutor* executor : executors_) {
      next = std::min(next, executor->next_time().value_or(end));
    }
    clock_.advance(std::max(next - clock_.now(), Duration(1)));
    settle();
  }
}

void World::step() {
  const std::uint32_t dice = below(100);
  if (dice < 30) {
    start_load();
  } else if (dice < 55) {
    const std::vector<BlockKey> keys = some_keys();
    const ImmutableBlocks have = manager_->device()->match_prefix(keys);
    check_blocks(have, "a match");
    if (have.size() < keys.size()) {
      compute(keys, have.size());
    }
  } else if (dice < 65) {
    onboard();
  } else if (dice < 72) {
    offload();
  } else if (dice < 80) {
    control();
  } else if (dice < 90) {
    let_time_pass(microseconds(1 + below(3000)));
  }
  if (chance(0.8)) {
    register_begun();
  }
  drop_some();
  if (chance(0.7)) {
    settle();
  }
}

std::string World::run() {
  lies_ = below(2) == 0;
  fence_chance_ = below(2) == 0 ? 0 : 0.02;
  open();
  while (failure_.empty() && step_ < options_.steps) {
    ++step_;
    step();
    check();
  }
  if (failure_.empty()) {
    calm_down();
  }
  if (manager_) {
    close();
  }
  return failure_;
}

// Faults stop: all transfers in flight end, and all held blocks become free.
void World::calm_down() {
  for (SwitchExecutor* executor : executors_) {
    executor->set_faults(false);
    executor->release();
  }
  for (const auto& [from, to] : paused_) {
    (void)manager_->resume(from, to);
  }
  if (const BlockPool* const host = manager_->host()) {
    (void)manager_->resize_host(host->capacity());
  }
  fence_chance_ = 0;
  begun_.clear();
  held_.clear();
  let_time_pass(seconds(2));
  held_.clear();  // blocks of loads that ended meanwhile
  let_time_pass(seconds(2));
  if (config_.disk.scrub_rate != 0) {
    let_time_pass(std::chrono::minutes(1));  // one more pass
    // The scrub holds blocks that it reads for the second time.
    for (int i = 0; manager_->disk()->counts().pinned != 0 && i < 1000; ++i) {
      let_time_pass(milliseconds(1));
    }
  }
  check();
  if (!manager_->drain(Duration::zero())) {
    wrong("something is still waiting or in flight long after faults stopped");
  }
  for (const CacheLevel level : kLevels) {
    if (const BlockPool* const pool = manager_->pool(level)) {
      const PoolCounts counts = pool->counts();
      if (counts.active != 0 || counts.quarantined != 0 || counts.pinned != 0) {
        wrong(str_cat(to_string(level), ": ", counts.active, " blocks in use, ", counts.quarantined, " in quarantine, ",
                      counts.pinned, " pinned, though nobody has any"));
      }
    }
  }
  // Devices that work again are used again.
  const std::vector<BlockKey> keys = some_keys();
  compute(keys, 0);
  register_begun();
  held_.clear();
  start_load();
  let_time_pass(milliseconds(200));
  check();
}

void World::check() {
  for (const std::shared_ptr<Load>& load : loads_) {
    if (!load->ended && clock_.now() > load->deadline + milliseconds(1)) {
      wrong("a load has outlived its deadline");
    }
  }
  std::erase_if(loads_, [](const std::shared_ptr<Load>& load) { return load->ended; });
  for (const CacheLevel level : kLevels) {
    check_pool(level);
  }
}

void World::check_pool(CacheLevel level) {
  BlockPool* const pool = manager_->pool(level);
  if (pool == nullptr) {
    return;
  }
  pool->check_invariants();
  const PoolCounts counts = pool->counts();
  if (counts.free + counts.inactive + counts.active + counts.quarantined != counts.total) {
    wrong(str_cat(to_string(level), ": counts do not add up"));
  }
  const std::vector<BlockKey> keys = resident(level);
  for (const BlockKey& key : keys) {
    if (!versions_.contains(key)) {
      wrong(str_cat(to_string(level), " holds ", key.to_string(), ", which nobody registered since the latest reset"));
    }
  }
  if (level == CacheLevel::kG3 || step_ % 10 != 0) {
    return;  // the check changes the order of blocks for a moment: not after every step
  }
  const BlockLayout& layout = *manager_->layout(level);
  const PinnedBlocks held = pool->hold(keys);
  for (std::uint32_t i = 0; i < held.size(); ++i) {
    if (!is_known(layout, held.block_ids()[i], held.key(i))) {
      wrong(str_cat(to_string(level), " holds other bytes than were registered under ", held.key(i).to_string()));
    }
  }
}

std::vector<BlockKey> World::resident(CacheLevel level) const {
  std::vector<BlockKey> keys;
  if (const BlockPool* const pool = manager_->pool(level)) {
    std::vector<ResidentBlock> blocks;
    (void)pool->list_resident(0, pool->capacity(), blocks);
    std::transform(blocks.begin(), blocks.end(), std::back_inserter(keys),
                   [](const ResidentBlock& block) { return block.key; });
  }
  return keys;
}

void World::check_blocks(const ImmutableBlocks& blocks, const char* where) {
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (!is_known(*manager_->layout(CacheLevel::kG1), blocks.block_ids()[i], blocks.key(i))) {
      wrong(str_cat(where, " gave other bytes than were registered under ", blocks.key(i).to_string()));
    }
  }
}

bool World::is_known(const BlockLayout& layout, BlockId block_id, const BlockKey& key) const {
  const auto versions = versions_.find(key);
  return versions != versions_.end() &&
         std::any_of(versions->second.begin(), versions->second.end(), [&](std::uint32_t version) {
           return !find_stranger(layout, index_of(block_id), pattern_of(key, version));
         });
}

}  // namespace cairn::testing
