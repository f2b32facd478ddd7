#include "tests/ranks/tiny_engine_testing.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cairn/base/check.h"
#include "cairn/tokens/hashes.h"

namespace cairn::testing {

namespace {

constexpr std::size_t kRunning = 6;
constexpr std::uint32_t kPrompts = 10;
constexpr std::uint32_t kMostBlocks = 7;
// Much longer than anything takes, also on a busy machine; only a hang reaches it.
constexpr Duration kForever = std::chrono::seconds(60);

SchedulerConnector::Options options_of(const TinyGrid& grid, const std::string& folder, bool with_disk) {
  SchedulerConnector::Options options;
  const KvShape whole = tiny_shape(grid);
  options.manager.block_size = kTinyPage;
  options.manager.model = {.name = "tiny",
                           .layers = whole.layers,
                           .heads = whole.heads,
                           .head_size = whole.head_size,
                           .element_type = "f16"};
  options.manager.device.blocks = kTinyDeviceBlocks;
  options.manager.device.memory = DeviceMemory::kSystem;
  options.manager.onboard.weigh = false;  // this engine computes faster than anything is loaded
  options.manager.host.blocks = 24;       // fewer than the prompts have: some are evicted
  if (with_disk) {
    options.manager.disk.blocks = 48;
    options.manager.disk.path = folder + "/blocks";
  }
  options.manager.health = {
      .failures = 3, .first_wait = std::chrono::milliseconds(1), .longest_wait = std::chrono::milliseconds(20)};
  options.ranks.ranks = grid.ranks;
  options.ranks.address = RankAddress{RankAddress::Unix{folder + "/leader"}};
  options.ranks.heartbeat = std::chrono::milliseconds(50);
  options.ranks.silence = std::chrono::milliseconds(CAIRN_SANITIZED ? 3000 : 1000);
  options.load_deadline = std::chrono::seconds(5);
  options.save_deadline = std::chrono::seconds(5);
  return options;
}

}  // namespace

TinyEngine::TinyEngine(const TinyGrid& grid, const std::string& folder, std::uint64_t seed, bool with_disk)
    : random_(seed) {
  Result<std::unique_ptr<SchedulerConnector>> made = SchedulerConnector::make(options_of(grid, folder, with_disk));
  CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
  connector_ = *std::move(made);
  ranks_ = std::make_unique<RankProcesses>(grid, connector_->address()->to_string());
  for (std::uint32_t rank = 0; rank < grid.ranks.count(); ++rank) {
    ranks_->start(rank);
  }
  const Status there = connector_->wait_for_ranks(kForever);
  CAIRN_CHECK(there.has_value(), there.has_value() ? "" : there.error().message);
  for (std::uint32_t block = 0; block < kTinyDeviceBlocks; ++block) {
    free_.push_back(BlockId{block});
  }
}

TinyEngine::~TinyEngine() = default;

std::uint64_t TinyEngine::seed_of_block(const Request& request, std::size_t block) const {
  // All tokens up to its end, as in its key.
  std::vector<BlockKey> keys(request.tokens.size() / kTinyPage);
  (void)hash_blocks(request.tokens, kTinyPage, connector_->manager().hasher(), std::nullopt, keys);
  return keys[block].low_word() ^ keys[block].high_word();
}

void TinyEngine::release(const std::vector<BlockId>& blocks) {
  free_.insert(free_.end(), blocks.begin(), blocks.end());
}

void TinyEngine::admit() {
  while (requests_.size() < kRunning) {
    Request request;
    request.id = std::to_string(next_id_);
    // Prompts share prefixes, so that one request loads what another has saved.
    const auto prompt = static_cast<Token>(random_() % kPrompts);
    const std::size_t blocks = 2 + random_() % (kMostBlocks - 1);
    for (Token i = 0; i < blocks * kTinyPage + 1; ++i) {
      request.tokens.push_back(i < 2 * kTinyPage ? prompt / 5 * 1000 + i : prompt * 1000 + i);
    }
    const std::size_t wanted = blocks + 1;
    if (free_.size() < wanted) {
      return;
    }
    const Result<RequestHandle> added = connector_->add(request.id, {.tokens = request.tokens});
    CAIRN_CHECK(added.has_value(), added.has_value() ? "" : added.error().message);
    request.handle = *added;
    ++next_id_;
    ++counts_.requests;
    const Result<SchedulerConnector::Match> match = connector_->match(request.handle, 0);
    CAIRN_CHECK(match.has_value(), "a new request can be matched");
    const std::size_t tokens = match->when == SchedulerConnector::Match::When::kLater ? match->tokens : 0;
    request.blocks.assign(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(wanted));
    free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(wanted));
    const Status allocated = connector_->allocated(request.handle, request.blocks, 0, tokens);
    CAIRN_CHECK(allocated.has_value(), allocated.has_value() ? "" : allocated.error().message);
    request.loading = tokens;
    request.phase = tokens > 0 ? Request::Phase::kLoading : Request::Phase::kReady;
    requests_.push_back(std::move(request));
  }
}

void TinyEngine::take_outcomes() {
  const SchedulerConnector::Outcomes results = connector_->take_outcomes();
  for (const SchedulerConnector::Outcomes::Loaded& loaded : results.loaded) {
    const auto found = std::ranges::find(requests_, loaded.request, &Request::handle);
    if (found == requests_.end()) {
      continue;  // aborted meanwhile
    }
    CAIRN_CHECK(loaded.tokens + loaded.missing == found->loading, "what was to come came or is missing");
    counts_.loaded += loaded.tokens / kTinyPage;
    counts_.missing += loaded.missing / kTinyPage;
    found->computed = loaded.tokens;
    found->checked_to = static_cast<std::uint32_t>(loaded.tokens / kTinyPage);
    found->phase = Request::Phase::kReady;
  }
  for (const RequestId& id : results.released) {
    const auto found = std::ranges::find_if(finishing_, [&](const Request& each) { return RequestId(each.id) == id; });
    CAIRN_CHECK(found != finishing_.end(), "only what was held is released");
    release(found->blocks);
    finishing_.erase(found);
  }
}

TinyStep TinyEngine::make_step() {
  TinyStep step;
  std::vector<SchedulerConnector::Scheduled> scheduled;
  static constexpr Token kSampled = 9;
  for (Request& request : requests_) {
    if (request.phase == Request::Phase::kLoading) {
      continue;
    }
    for (std::uint32_t i = request.checked_from; i < request.checked_to; ++i) {
      step.check.push_back({.block = index_of(request.blocks[i]), .seed = seed_of_block(request, i)});
    }
    request.checked_from = request.checked_to;
    SchedulerConnector::Scheduled each{.request = request.handle, .computed_tokens = request.computed};
    if (request.phase == Request::Phase::kComputed) {
      each.new_tokens = {&kSampled, 1};
    } else {
      for (std::size_t i = request.computed / kTinyPage; i < request.tokens.size() / kTinyPage; ++i) {
        step.fill.push_back({.block = index_of(request.blocks[i]), .seed = seed_of_block(request, i)});
      }
    }
    scheduled.push_back(each);
  }
  const Status built = connector_->build({.number = ++iteration_, .scheduled = scheduled}, step.metadata);
  CAIRN_CHECK(built.has_value(), built.has_value() ? "" : built.error().message);
  counts_.refused += connector_->refused().size();
  return step;
}

bool TinyEngine::step() {
  take_outcomes();
  admit();
  const TinyStep step = make_step();
  const std::optional<TinyAnswer> answer = ranks_->step(step);
  if (!answer) {
    return false;
  }
  counts_.wrong += answer->wrong;
  for (std::size_t i = 0; i < requests_.size();) {
    Request& request = requests_[i];
    if (request.phase == Request::Phase::kComputed) {
      const Result<bool> held = connector_->finish(request.handle);
      CAIRN_CHECK(held.has_value(), held.has_value() ? "" : held.error().message);
      *held ? finishing_.push_back(request) : release(request.blocks);
      requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (request.phase == Request::Phase::kReady) {
      request.computed = request.tokens.size();
      request.phase = Request::Phase::kComputed;
    }
    ++i;
  }
  return true;
}

void TinyEngine::idle() {
  take_outcomes();
  std::this_thread::yield();
}

void TinyEngine::abort_all() {
  for (const Request& request : requests_) {
    ++counts_.aborted;
    const Result<bool> held = connector_->finish(request.handle);
    CAIRN_CHECK(held.has_value(), held.has_value() ? "" : held.error().message);
    *held ? finishing_.push_back(request) : release(request.blocks);
  }
  requests_.clear();
}

void TinyEngine::recover(std::uint32_t rank) {
  abort_all();
  ranks_->start(rank);
  const Status there = connector_->wait_for_ranks(kForever);
  CAIRN_CHECK(there.has_value(), there.has_value() ? "" : there.error().message);
}

bool TinyEngine::finish_all() {
  abort_all();
  const TimePoint end = steady_clock().now() + kForever;
  bool is_over = false;
  while (!is_over && steady_clock().now() < end) {
    take_outcomes();
    const std::optional<TinyAnswer> answer = ranks_->step(make_step());  // passes on the effects of finish()
    if (!answer) {
      return false;
    }
    is_over = finishing_.empty() && !connector_->has_work() && answer->unheard == 0;
  }
  return is_over;
}

}  // namespace cairn::testing
