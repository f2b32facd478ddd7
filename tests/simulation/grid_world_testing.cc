#include "tests/simulation/grid_world_testing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/leader/leader.h"
#include "cairn/memory/system_region.h"
#include "cairn/rank/rank.h"
#include "cairn/tier/disk_reshard.h"
#include "cairn/tier/tier.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/row_sums.h"

namespace cairn::testing {
namespace {

constexpr std::uint32_t kBlocks = 8;  // of every tier
// Much longer than anything takes; only a defect reaches it.
constexpr std::chrono::seconds kPatience{60};

BlockLayoutPtr make_layout(const KvShape& shape) {
  const BlockLayout::Options options{.shape = shape, .blocks = kBlocks};
  const std::uint64_t bytes = BlockLayout::region_sizes(options)->front();
  return *BlockLayout::make(options, {*system_region({.size = bytes})});
}

MemoryKind kind_of(CacheLevel level) {
  return level == CacheLevel::kG1   ? MemoryKind::kDevice
         : level == CacheLevel::kG2 ? MemoryKind::kPinned
                                    : MemoryKind::kFile;
}

constexpr CacheLevel kLevels[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};

}  // namespace

GridCounts& GridCounts::operator+=(const GridCounts& other) {
  moved += other.moved;
  failed += other.failed;
  stale += other.stale;
  struck += other.struck;
  deaths += other.deaths;
  in_flight += other.in_flight;
  reshards += other.reshards;
  replicas += other.replicas;
  stages += other.stages;
  return *this;
}

class GridWorld::Impl {
 public:
  explicit Impl(const GridWorldOptions& options) : options_(options), random_(options.seed) {
    draw_model();
    draw_grid();
    whole_block_ = make_layout(whole_);
    start_all();
  }
  ~Impl() { stop_all(); }

  std::string run() {
    for (step_ = 0; step_ < options_.steps && failure_.empty(); ++step_) {
      const std::uint32_t what = below(10);
      if (step_ == options_.steps / 2) {
        restart();
      } else if (what < 3) {
        compute();
      } else if (what < 9) {
        move(has_faults_ ? Expect::kAnything : Expect::kSuccess);
      } else {
        lose_a_rank();
      }
    }
    return failure_.empty() ? "" : str_cat("step ", step_, ", ", description_, ": ", failure_);
  }
  [[nodiscard]] const GridCounts& counts() const { return counts_; }

 private:
  struct WorldRank {
    RankShare share;
    BlockLayoutPtr device = {};
    std::unique_ptr<Rank> rank = {};
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  void say(const std::string& what) {
    if (options_.log != nullptr) {
      *options_.log << step_ << ": " << what << "\n";
    }
  }
  void wrong(const std::string& what) {
    if (failure_.empty()) {
      failure_ = what;
    }
    say("WRONG: " + what);
  }

  void draw_model() {
    whole_ = {.layers = 1 + below(7),
              .kv = 1 + below(2),
              .page_size = 1 + below(4),
              .heads = 1U << below(3),
              .head_size = 4 * (1 + below(3)),
              .element_bits = 16};
    has_faults_ = below(2) == 0;
    space_ = config().space().id();
  }

  void draw_grid() {
    grid_ = {1U << below(3), 1 + below(std::min(whole_.layers, 3U))};
    // Cuts between stages at random.
    std::set<std::uint32_t> cuts;
    while (cuts.size() + 1 < grid_.pipeline) {
      cuts.insert(1 + below(whole_.layers - 1));
    }
    std::uint32_t first = 0;
    cuts.insert(whole_.layers);
    stages_.clear();
    for (const std::uint32_t cut : cuts) {
      stages_.push_back({first, cut - first});
      first = cut;
    }
    const bool has_replicas = whole_.heads < grid_.tensor;
    counts_.replicas += has_replicas ? 1 : 0;
    counts_.stages += grid_.pipeline > 1 ? 1 : 0;
    description_ = str_cat(grid_.to_string(), ", ", whole_.layers, " layers, ", whole_.heads, " heads",
                           has_faults_ ? ", with faults" : "");
    say(description_);
  }

  [[nodiscard]] ManagerConfig config() const {
    ManagerConfig config;
    config.block_size = whole_.page_size;
    config.model = {.name = "grid",
                    .layers = whole_.layers,
                    .kv = whole_.kv,
                    .heads = whole_.heads,
                    .head_size = whole_.head_size,
                    .element_type = "f16"};
    config.device.blocks = kBlocks;
    config.device.memory = DeviceMemory::kSystem;
    config.host.blocks = kBlocks;
    config.disk.blocks = kBlocks;
    config.disk.path = options_.folder + "/blocks";
    return config;
  }

  void start_all() {
    leader_ = *Leader::make({.ranks = grid_, .transfers = 8});
    leader_->open(config());
    executor_ = leader_->make_executor();
    ranks_.resize(grid_.count());
    for (std::uint32_t rank = 0; rank < grid_.count(); ++rank) {
      start(rank);
    }
    if (failure_.empty() && !leader_->wait_for_ranks(kPatience)) {
      wrong("the ranks of a grid do not come up");
    }
  }
  void stop_all() {
    executor_.reset();
    ranks_.clear();
    leader_.reset();
  }

  // Executors of one rank, of which each fails, cuts short, delays or corrupts some blocks.
  [[nodiscard]] auto faults_of(std::uint32_t number) const {
    return [seed = options_.seed * 100 + number](ExecutorKind, std::unique_ptr<TransferExecutor> inside) {
      FaultOptions faults{.seed = seed, .delay = std::chrono::microseconds(200)};
      for (const Fault fault : {Fault::kFail, Fault::kShort, Fault::kDelay, Fault::kCorruptInFlight}) {
        faults.rules.push_back({.fault = fault, .chance = 0.02});
      }
      return std::make_unique<FaultExecutor>(steady_clock(), std::move(inside), std::move(faults));
    };
  }

  void start(std::uint32_t number) {
    WorldRank& rank = ranks_[number];
    const LayerRange layers = stages_[grid_.stage_of(number)];
    rank.share = *RankShare::make(grid_, number, whole_, layers);
    const KvShape shape = rank.share.shape(whole_);
    rank.device = make_layout(shape);
    std::vector<std::uint32_t> numbers(layers.count);
    for (std::uint32_t i = 0; i < layers.count; ++i) {
      numbers[i] = i;
    }
    LayoutGroups device =
        *LayoutGroups::make(*LayerGroups::make(layers.count, {{"all", shape, std::move(numbers)}}), {rank.device});
    Rank::Options options{.rank = number, .ranks = grid_, .first_layer = layers.first, .device = std::move(device)};
    if (has_faults_) {
      options.around = faults_of(number);
    }
    Result<std::unique_ptr<Rank>> joined = Rank::join(*leader_, std::move(options));
    if (!joined) {
      wrong(joined.error().message);
      return;
    }
    rank.rank = *std::move(joined);
  }

  // Calls visit(row of the whole block, row of the part) for each row of a rank's part.
  template <typename Visit>
  void for_each_row(const WorldRank& rank, std::uint32_t block, Visit visit) const {
    const KvShape& part = rank.device->shape();
    const auto place = [](const BlockLayout& layout, const BlockLayout::Address& at) {
      return layout.regions()[at.region]->base() + at.offset;
    };
    for (std::uint32_t layer = 0; layer < part.layers; ++layer) {
      for (std::uint32_t kv = 0; kv < part.kv; ++kv) {
        for (std::uint32_t token = 0; token < part.page_size; ++token) {
          for (std::uint32_t head = 0; head < part.heads; ++head) {
            visit(place(*whole_block_, whole_block_->address(0, rank.share.layers.first + layer, kv, token,
                                                             rank.share.heads.first_head + head)),
                  place(*rank.device, rank.device->address(block, layer, kv, token, head)));
          }
        }
      }
    }
  }

  // The checksum that the block of the whole model has.
  [[nodiscard]] Checksum checksum_of(std::uint64_t seed) {
    const auto [checksum, is_new] = checksums_.try_emplace(seed);
    if (is_new) {
      write_pattern(*whole_block_, 0, seed);
      const CopyPlanPtr plan = *CopyPlan::make(whole_block_, make_layout(whole_));
      checksum->second = finish(sum_block(*plan, PlanSide::kSource, 0), whole_.block_bytes(), tag_of(seed));
    }
    return checksum->second;
  }
  static BlockKey key_of(std::uint64_t seed) { return BlockKey::make_checked(0, SequenceHash{seed}, SequenceHash{0}); }
  [[nodiscard]] BlockTag tag_of(std::uint64_t seed) const { return block_tag(space_, key_of(seed)); }

  // The engine computes a block: every rank its part.
  void compute() {
    const std::uint32_t block = below(kBlocks);
    const std::uint64_t seed = ++last_seed_;
    write_pattern(*whole_block_, 0, seed);
    for (const WorldRank& rank : ranks_) {
      for_each_row(rank, block,
                   [&](const std::byte* whole, std::byte* part) { std::memcpy(part, whole, whole_.row_bytes()); });
    }
    holds_[index_of(CacheLevel::kG1)][block] = seed;
    say(str_cat("block ", block, " is computed: ", seed));
  }

  // What may come of the blocks of a transfer.
  enum class Expect {
    kSuccess,   // of every block that is there
    kAnything,  // but what is done is right
  };

  // Between two tiers: as many different blocks as are drawn, from those that hold something. `meanwhile`: while they are in flight.
  void move(Expect expect, const std::function<void()>& meanwhile = [] {}) {
    const CacheLevel from = kLevels[below(3)];
    const CacheLevel to = kLevels[(index_of(from) + 1 + below(2)) % 3];
    std::vector<BlockPair> pairs;
    std::set<std::uint32_t> used;
    for (std::uint32_t i = 1 + below(4); i > 0; --i) {
      const BlockPair pair{below(kBlocks), below(kBlocks)};
      if (holds_[index_of(from)][pair.source] && used.insert(pair.destination).second) {
        pairs.push_back(pair);
      }
    }
    if (pairs.empty()) {
      meanwhile();
      return;
    }
    take(from, to, pairs, transfer(from, to, pairs, meanwhile), expect);
  }

  void take(CacheLevel from, CacheLevel to, const std::vector<BlockPair>& pairs, const TransferOutcome& outcome,
            Expect expect) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const std::uint64_t seed = *holds_[index_of(from)][pairs[i].source];
      const BlockState state = outcome.blocks[i].state;
      const bool is_stale = from == CacheLevel::kG2 && stale_.contains(pairs[i].source);
      const BlockState expected = is_stale ? BlockState::kMismatch : BlockState::kDone;
      if (state != expected && (expect == Expect::kSuccess || state == BlockState::kDone)) {
        wrong(str_cat("block ", pairs[i].source, " of ", to_string(from), " to ", to_string(to), " is ",
                      to_string(state), ": ", outcome.error));
        return;
      }
      const bool is_right = state == BlockState::kDone && outcome.blocks[i].checksum == checksum_of(seed);
      // Bytes that change on their way from the device have another checksum, which nothing is compared with yet.
      if (state == BlockState::kDone && !is_right && (expect == Expect::kSuccess || from != CacheLevel::kG1)) {
        wrong(str_cat("the checksum of ", seed, " is not that of the whole block"));
      }
      (is_stale ? counts_.stale : is_right ? counts_.moved : counts_.struck) += 1;
      std::optional<std::uint64_t>& there = holds_[index_of(to)][pairs[i].destination];
      there = is_right ? std::optional(seed) : std::nullopt;  // nobody knows what a block holds whose copy failed
      if (is_right && to == CacheLevel::kG2) {
        stale_.erase(pairs[i].destination);
      }
    }
    if (to == CacheLevel::kG1) {
      check_device();
    }
  }

  TransferOutcome transfer(
      CacheLevel from, CacheLevel to, const std::vector<BlockPair>& pairs,
      const std::function<void()>& meanwhile = [] {}) {
    say(str_cat(pairs.size(), " blocks from ", to_string(from), " to ", to_string(to)));
    Transfer transfer{.plan = *CopyPlan::make(*BlockLayout::elsewhere(whole_, kBlocks, kind_of(from)),
                                              *BlockLayout::elsewhere(whole_, kBlocks, kind_of(to))),
                      .verify = from == CacheLevel::kG1 ? Verify::kMake : Verify::kCheck};
    for (const BlockPair& pair : pairs) {
      const std::uint64_t seed = holds_[index_of(from)][pair.source].value_or(0);
      transfer.blocks.push_back({.pair = pair, .tag = tag_of(seed), .expected = checksum_of(seed)});
    }
    auto done = std::make_shared<std::promise<TransferOutcome>>();
    auto settled = std::make_shared<std::promise<void>>();
    transfer.done = [done](TransferOutcome&& outcome) { done->set_value(std::move(outcome)); };
    transfer.settled = [settled] { settled->set_value(); };
    std::future<TransferOutcome> outcome = done->get_future();
    std::future<void> end = settled->get_future();
    CAIRN_CHECK(executor_->submit(std::move(transfer)).has_value(), "the leader takes a transfer");
    meanwhile();
    if (outcome.wait_for(kPatience) != std::future_status::ready ||
        end.wait_for(kPatience) != std::future_status::ready) {
      wrong("a transfer does not end");
      return {.blocks = std::vector<BlockOutcome>(pairs.size(), BlockOutcome{.state = BlockState::kFailed}),
              .error = "late"};
    }
    return outcome.get();
  }

  // Every rank has its part of what the device holds.
  void check_device() {
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      const std::optional<std::uint64_t> seed = holds_[index_of(CacheLevel::kG1)][block];
      if (!seed) {
        continue;
      }
      write_pattern(*whole_block_, 0, *seed);
      for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
        for_each_row(ranks_[number], block, [&](const std::byte* whole, const std::byte* part) {
          if (std::memcmp(whole, part, whole_.row_bytes()) != 0) {
            wrong(str_cat("device block ", block, " of rank ", number, " is not its part of ", *seed));
          }
        });
      }
    }
  }

  // Its device and, unless it shares it, its host memory are lost.
  void lose_a_rank() {
    const std::uint32_t number = below(grid_.count());
    say(str_cat("rank ", number, " dies"));
    ++counts_.deaths;
    if (below(2) == 0) {
      ++counts_.in_flight;
      move(Expect::kAnything, [&] { ranks_[number].rank.reset(); });
    } else {
      ranks_[number].rank.reset();
    }
    const TransferOutcome outcome = transfer(CacheLevel::kG3, CacheLevel::kG2, {{0, below(kBlocks)}});
    for (const BlockOutcome& block : outcome.blocks) {
      ++counts_.failed;
      if (block.state != BlockState::kFailed) {
        wrong("a block was moved without one of the ranks");
      }
    }
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      holds_[index_of(CacheLevel::kG1)][block].reset();
      if (holds_[index_of(CacheLevel::kG2)][block]) {
        stale_.insert(block);
      }
    }
    start(number);
    if (failure_.empty() && !leader_->wait_for_ranks(kPatience)) {
      wrong("the rank does not come back");
    }
  }

  // The leader and all ranks end, perhaps in the middle of a transfer, and others go on with the files: the same grid, or another one
  // after resharding.
  void restart() {
    say("all end");
    move(Expect::kAnything, [this] {
      if (below(2) == 0) {
        ranks_.clear();
      }
      stop_all();
    });
    holds_[index_of(CacheLevel::kG1)].clear();
    holds_[index_of(CacheLevel::kG2)].clear();
    stale_.clear();
    std::vector<BlockPair> on_disk;
    std::set<std::uint64_t> seeds;
    for (auto& [block, seed] : holds_[index_of(CacheLevel::kG3)]) {
      if (seed && seeds.insert(*seed).second) {
        on_disk.push_back({block, block});
      } else {
        seed.reset();  // a tier holds no key twice
      }
    }
    if (!on_disk.empty() && below(3) != 0) {
      change_grid(on_disk);
    }
    start_all();
    if (failure_.empty() && !on_disk.empty()) {
      const TransferOutcome outcome = transfer(CacheLevel::kG3, CacheLevel::kG1, on_disk);
      take(CacheLevel::kG3, CacheLevel::kG1, on_disk, outcome, has_faults_ ? Expect::kAnything : Expect::kSuccess);
    }
  }

  // Writes the file that the manager of a leader has, and reshards.
  void change_grid(const std::vector<BlockPair>& on_disk) {
    const std::string path = config().disk.path;
    {
      DiskFile leader = *DiskFile::create(path, {.space = config().space(), .blocks = kBlocks, .keeps_secret = true});
      std::vector<DiskEntry> entries;
      for (const BlockPair& block : on_disk) {
        const std::uint64_t seed = *holds_[index_of(CacheLevel::kG3)][block.source];
        entries.push_back({.block_id = BlockId{block.source}, .key = key_of(seed), .checksum = checksum_of(seed)});
      }
      CAIRN_CHECK(leader.put(entries).has_value(), "entries can be written");
    }
    draw_grid();
    std::vector<std::uint32_t> layers;
    for (const LayerRange& stage : stages_) {
      layers.push_back(stage.count);
    }
    const Result<Resharding> done = reshard(path, {.grid = grid_, .stage_layers = layers});
    if (!done || done->wrong != 0 || done->entries != on_disk.size()) {
      wrong(done ? str_cat("of ", done->entries, " blocks ", done->wrong, " are wrong") : done.error().message);
    }
    ++counts_.reshards;
    std::filesystem::remove(path);
  }

  const GridWorldOptions options_;
  std::mt19937_64 random_;
  KvShape whole_;
  bool has_faults_ = false;
  NamespaceId space_{};
  RankGrid grid_;
  std::vector<LayerRange> stages_;
  std::string description_;
  BlockLayoutPtr whole_block_;  // block 0: one block of the whole model
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<TransferExecutor> executor_;
  std::vector<WorldRank> ranks_;
  std::array<std::map<std::uint32_t, std::optional<std::uint64_t>>, kCacheLevels>
      holds_;                                    // the seed, by tier and block
  std::set<std::uint32_t> stale_;                // host blocks from before a rank came back
  std::map<std::uint64_t, Checksum> checksums_;  // by seed
  std::uint64_t last_seed_ = 0;
  std::uint32_t step_ = 0;
  std::string failure_;
  GridCounts counts_;
};

GridWorld::GridWorld(const GridWorldOptions& options) : impl_(std::make_unique<Impl>(options)) {}
GridWorld::~GridWorld() = default;
std::string GridWorld::run() { return impl_->run(); }
const GridCounts& GridWorld::counts() const { return impl_->counts(); }

}  // namespace cairn::testing
