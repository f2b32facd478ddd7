// A random engine with few blocks, many requests with common prefixes, and ranks that fail, stall and die. Checked
// against a simple model: a device block that is reported to hold a block of a request holds the number of its key.
#include <gmock/gmock.h>

#include <list>
#include <map>
#include <random>

#include "cairn/base/str_cat.h"
#include "cairn/connector/scheduler_testing.h"
#include "cairn/leader/leader.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using When = SchedulerConnector::Match::When;
using Scheduled = SchedulerConnector::Scheduled;

struct Totals {
  std::size_t finished = 0;
  std::size_t aborted = 0;
  std::size_t preempted = 0;
  std::size_t loaded = 0;   // tokens
  std::size_t missing = 0;  // tokens
  std::size_t fences = 0;
  std::size_t put_off = 0;
  std::size_t drafts_right = 0;
  std::size_t failed_steps = 0;
  std::uint64_t saved_in_step = 0;  // blocks that were given out with the step that computes them, and confirmed
  std::uint64_t withdrawn = 0;      // or not
};

class RandomEngine {
 public:
  RandomEngine(std::uint64_t seed, LoadMode mode, std::uint32_t ranks)
      : random_(seed),
        mode_(mode),
        gives_scheduled_tokens_(seed % 2 == 0),
        fails_steps_(seed % 4 == 0),
        world_(options(mode, ranks), seed) {
    for (std::uint32_t i = 0; i < kDeviceBlocks; ++i) {
      free_.push_back(BlockId{i});
    }
  }

  void run(std::size_t iterations, Totals& totals) {
    totals_ = &totals;
    for (std::size_t i = 0; i < iterations && !::testing::Test::HasFailure(); ++i) {
      disturb();
      take_outcomes();
      if (requests_.size() < 10 && below(2) == 0) {
        add();
      }
      iterate();
    }
    wind_up();
  }

 private:
  static constexpr std::uint32_t kDeviceBlocks = 48;
  static constexpr std::size_t kMostTokens = 70;

  struct Request {
    RequestHandle handle{};
    RequestId id;
    Token family = 0;
    std::size_t target = 0;
    std::vector<Token> tokens = {};  // known to the engine
    std::size_t computed = 0;
    std::vector<BlockId> blocks = {};
    enum class State : std::uint8_t { kWaiting, kLoading, kRunning, kFinishing } state = State::kWaiting;
    std::size_t told_blocks = 0;
    std::vector<Token> new_tokens = {};  // not passed in yet
    std::size_t accepted = 0;            // not passed in yet
    // of the present iteration
    std::size_t scheduled = 0;  // tokens
    std::vector<Token> draft_tokens = {};
    bool is_loaded_in_step = false;
  };
  // What the counts of a request have to be.
  struct Counted {
    std::size_t prompt = 0;
    bool is_matched = false;
    std::size_t lost = 0;          // by a preemption, and the request has not run since
    std::size_t saved_blocks = 0;  // that were handed to the workers
    TokenCounts counts = {};
  };
  using State = Request::State;

  static SchedulerConnector::Options options(LoadMode mode, std::uint32_t ranks) {
    SchedulerConnector::Options options = small_options(kDeviceBlocks, 24, ranks);
    options.load = mode;
    options.loading_blocks = 20;
    options.ask_again = 3;
    options.in_step_save_blocks = 1;
    options.manager.health.failures = 1000000;  // faults must not suspend a tier
    return options;
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }
  static Token token_at(Token family, std::size_t position) {
    return static_cast<Token>(family * 100000 + position * 7 + 1);
  }
  [[nodiscard]] std::vector<BlockKey> keys_of(const Request& request) const {
    const TokenBlockSequence sequence =
        *TokenBlockSequence::create(request.tokens, kBlockSize, world_->manager().hasher());
    return {sequence.keys().begin(), sequence.keys().end()};
  }
  // The full blocks of the first `tokens` tokens hold what they should.
  void expect_held(const Request& request, std::size_t tokens, const char* when) {
    const auto keys = keys_of(request);
    EXPECT_TRUE(world_.hold(std::span(keys).first(tokens / kBlockSize), request.blocks))
        << when << ", request " << request.id.to_string() << ", iteration " << world_.iteration;
  }

  void disturb() {
    for (const auto& rank : world_.ranks) {
      if (below(4) == 0) {
        rank->stop(below(3) == 0);
      }
      if (below(20) == 0) {
        rank->fail(below(2) == 0 ? 0.1 : 0);
      }
    }
    if (below(60) == 0) {
      const auto which = static_cast<std::uint32_t>(below(world_.ranks.size()));
      world_.ranks[which]->leave();
      world_.ranks[which]->join(world_->local_leader());
    }
  }

  void add() {
    Request request{.id = RequestId(std::uint64_t{next_id_++}), .family = static_cast<Token>(below(4))};
    const std::size_t prompt = 1 + below(40);
    request.target = std::min(prompt + 1 + below(30), kMostTokens);
    for (std::size_t i = 0; i < prompt; ++i) {
      request.tokens.push_back(token_at(request.family, i));
    }
    request.handle = *world_->add(request.id, {.tokens = request.tokens});
    counted_[request.handle].prompt = prompt;
    requests_.push_back(std::move(request));
  }

  Request* find(RequestHandle handle) {
    const auto found = std::ranges::find(requests_, handle, &Request::handle);
    return found != requests_.end() ? &*found : nullptr;
  }

  void take_outcomes() {
    const SchedulerConnector::Outcomes results = world_->take_outcomes();
    for (const auto& loaded : results.loaded) {
      Request& request = *find(loaded.request);
      ASSERT_EQ(loaded.tokens + loaded.missing, request.computed) << "what was requested";
      expect_held(request, loaded.tokens, "loaded");
      if (mode_ == LoadMode::kInStep && loaded.missing > 0) {
        const std::size_t beyond = request.scheduled;
        counted_[request.handle].counts.lost += beyond;
        counted_[request.handle].counts.recomputed += beyond;
      }
      count(request, loaded.tokens, loaded.missing);
      totals_->loaded += loaded.tokens;
      totals_->missing += loaded.missing;
      request.computed = loaded.tokens;
      if (loaded.missing > 0) {
        request.scheduled = 0;  // what it computes in this iteration is discarded
        request.draft_tokens.clear();
      }
      request.is_loaded_in_step = false;
      request.state = State::kRunning;
    }
    for (const auto& ended : results.ended) {
      check_counts(ended);
    }
    for (const RequestId& id : results.released) {
      const auto found = std::ranges::find(requests_, id, &Request::id);
      ASSERT_NE(found, requests_.end());
      ASSERT_EQ(found->state, State::kFinishing);
      remove(found);
    }
  }
  // The request runs, or its load has ended: nothing is in the engine's own cache.
  void count(const Request& request, std::size_t loaded, std::size_t failed) {
    Counted& counted = counted_[request.handle];
    TokenCounts& counts = counted.counts;
    if (counted.is_matched && counts.asked == 0) {
      counts.requests = 1;
      counts.asked = counted.prompt;
      counts.loaded_host = loaded;
      counts.failed = failed;
      counts.computed = counted.prompt - loaded;
    } else {
      const std::size_t reloaded = std::min(loaded, counted.lost);
      counts.lost += counted.lost;
      counts.reloaded += reloaded;
      counts.recomputed += counted.lost - reloaded;
      counts.loaded_late += loaded - reloaded;
      counted.lost = 0;
    }
  }
  void count_saves(const IterationMetadata& metadata) {
    for (const OperationPtr& save : metadata.saves) {
      counted_[RequestHandle{save->id.slot}].saved_blocks += save->block_ids.size();
    }
  }
  void check_counts(const SchedulerConnector::Outcomes::Ended& ended) {
    ASSERT_TRUE(counted_.contains(ended.request)) << "each ends once";
    const Counted counted = counted_[ended.request];
    counted_.erase(ended.request);
    const TokenCounts& is = ended.counts;
    const TokenCounts& should_be = counted.counts;
    EXPECT_TRUE(is.adds_up());
    EXPECT_EQ(is.requests, should_be.requests);
    EXPECT_EQ(is.asked, should_be.asked);
    EXPECT_EQ(is.loaded(), should_be.loaded());
    EXPECT_EQ(is.failed, should_be.failed);
    if (!fails_steps_) {
      EXPECT_EQ(is.computed, should_be.computed);
    }
    EXPECT_EQ(is.saved + is.dropped(), counted.saved_blocks * kBlockSize);
    if (gives_scheduled_tokens_ && !fails_steps_) {  // otherwise all that a request has counts as computed
      EXPECT_EQ(is.lost, should_be.lost);
      EXPECT_EQ(is.reloaded, should_be.reloaded);
      EXPECT_EQ(is.recomputed, should_be.recomputed);
      EXPECT_EQ(is.loaded_late, should_be.loaded_late);
    }
    sum_ += is;
  }
  void remove(std::list<Request>::iterator request) {
    free_.insert(free_.end(), request->blocks.begin(), request->blocks.end());
    requests_.erase(request);
  }

  void end(std::list<Request>::iterator request) {
    const bool tells = below(2) == 0 && request->state == State::kRunning && request->accepted == 0;
    const std::size_t passed = request->tokens.size() - request->new_tokens.size();
    const auto held =
        tells ? world_->finish(request->handle, std::min(request->computed, passed)) : world_->finish(request->handle);
    ASSERT_TRUE(held.has_value()) << held.error().to_string();
    if (*held) {
      request->state = State::kFinishing;
    } else {
      remove(request);
    }
  }

  bool grow(Request& request, std::size_t tokens) {
    while (request.blocks.size() * kBlockSize < tokens) {
      if (free_.empty()) {
        return false;
      }
      const std::size_t which = below(free_.size());
      std::swap(free_[which], free_.back());
      request.blocks.push_back(free_.back());
      free_.pop_back();
    }
    return true;
  }
  void preempt(Request& request) {
    ++totals_->preempted;
    Counted& counted = counted_[request.handle];
    const std::size_t told = request.tokens.size() - request.new_tokens.size() - request.accepted;
    counted.lost = std::max(counted.lost, std::min(request.computed, told));
    counted.is_matched = false;
    free_.insert(free_.end(), request.blocks.begin(), request.blocks.end());
    request.blocks.clear();
    request.told_blocks = 0;
    request.computed = 0;
    request.state = State::kWaiting;
    preempted_.push_back(request.handle);
  }

  void iterate() {
    preempted_.clear();
    for (auto request = requests_.begin(); request != requests_.end();) {
      const auto next = std::next(request);
      request->scheduled = 0;
      const bool is_done = request->state == State::kRunning && request->tokens.size() >= request->target;
      if (is_done || (below(80) == 0 && request->state != State::kFinishing)) {
        ++(is_done ? totals_->finished : totals_->aborted);
        end(request);
      }
      request = next;
    }
    for (Request& request : requests_) {
      if (request.state == State::kRunning) {
        run_on(request);
      }
    }
    for (Request& request : requests_) {
      if (request.state == State::kWaiting && std::ranges::find(preempted_, request.handle) == preempted_.end()) {
        start(request);
      }
    }
    step();
  }

  // The next chunk, or the next token with drafts.
  void run_on(Request& request) {
    if (below(10) == 0) {
      return;  // not scheduled
    }
    const std::size_t left = request.tokens.size() - request.computed;
    const std::size_t count = left == 1 ? 1 : 1 + below(left);
    const std::size_t drafts = left == 1 ? below(4) : 0;
    if (below(40) == 0 || !grow(request, request.computed + count + drafts)) {
      preempt(request);
      return;
    }
    request.scheduled = count;
    for (std::size_t i = 0; i < drafts; ++i) {
      const bool is_right = below(3) != 0;
      request.draft_tokens.push_back(token_at(request.family, request.tokens.size() + i) + (is_right ? 0 : 3));
    }
  }

  void start(Request& request) {
    const auto match = world_->match(request.handle, 0);
    ASSERT_TRUE(match.has_value()) << match.error().to_string();
    counted_[request.handle].is_matched = true;
    totals_->put_off += match->when == When::kAskAgain ? 1 : 0;
    const std::size_t loaded = match->tokens > 0 && below(4) == 0 ? match->tokens - kBlockSize : match->tokens;
    const std::size_t count = loaded == 0 || mode_ == LoadMode::kInStep ? 1 + below(request.tokens.size() - loaded) : 0;
    if (match->when == When::kAskAgain || free_.size() * kBlockSize < loaded + count + kBlockSize) {
      return;
    }
    ASSERT_TRUE(grow(request, loaded + count));
    if (loaded > 0 || below(2) == 0) {
      CAIRN_SLOT_OK(world_->allocated(request.handle, request.blocks, 0, loaded));
      request.told_blocks = request.blocks.size();
    }
    request.computed = loaded;
    request.scheduled = count;
    request.is_loaded_in_step = loaded > 0 && count > 0;
    request.state = loaded > 0 ? State::kLoading : State::kRunning;
  }

  void step() {
    std::vector<Scheduled> scheduled;
    for (Request& request : requests_) {
      if (request.scheduled > 0) {
        scheduled.push_back(
            {.request = request.handle,
             .computed_tokens = request.computed,
             .new_tokens = request.new_tokens,
             .new_blocks = std::span(request.blocks).subspan(request.told_blocks),
             .draft_tokens = request.draft_tokens,
             .accepted_draft_tokens = std::exchange(request.accepted, 0),
             .scheduled_tokens = gives_scheduled_tokens_ ? request.scheduled + request.draft_tokens.size() : 0});
        request.told_blocks = request.blocks.size();
      }
    }
    const IterationMetadata metadata = world_.begin(scheduled, preempted_);
    totals_->fences += metadata.fences.size();
    count_saves(metadata);
    for (const Request& request : requests_) {
      if (request.scheduled > 0 && request.state == State::kRunning) {
        count(request, 0, 0);
      }
    }
    for (const auto& refused : world_->refused()) {
      ADD_FAILURE() << refused.error.to_string();
    }
    for (Request& request : requests_) {
      if (request.scheduled > 0) {
        request.new_tokens.clear();
      }
    }
    wait_for_layers();
    if (fails_steps_ && below(12) == 0) {
      fail_step();
      return;
    }
    for (Request& request : requests_) {
      if (request.scheduled > 0) {
        compute(request);
      }
    }
    world_.end();
  }

  // The device has written something to the blocks, and the engine uses nothing of it. Half of the time only the scheduler
  // knows.
  void fail_step() {
    ++totals_->failed_steps;
    for (Request& request : requests_) {
      if (request.scheduled == 0) {
        continue;
      }
      const std::size_t end = request.computed + request.scheduled + request.draft_tokens.size();
      for (std::size_t block = (request.computed + kBlockSize - 1) / kBlockSize; block * kBlockSize < end; ++block) {
        for (const auto& rank : world_.ranks) {
          rank->write(request.blocks[block], random_());
        }
      }
      request.draft_tokens.clear();
    }
    if (below(2) == 0) {
      world_.end();
    }
  }

  // Loads of this iteration end before later tokens are computed.
  void wait_for_layers() {
    const auto waits = [this] {
      return std::ranges::any_of(requests_, [](const Request& request) { return request.is_loaded_in_step; });
    };
    const TimePoint end = steady_clock().now() + kConnectorPatience;
    while (waits() && !::testing::Test::HasFailure()) {
      for (const auto& rank : world_.ranks) {
        rank->stop(false);
      }
      take_outcomes();
      ASSERT_LT(steady_clock().now(), end) << "a load does not end";
      std::this_thread::yield();
    }
  }

  void compute(Request& request) {
    expect_held(request, request.computed, "before it computes");
    std::size_t right = 0;
    while (right < request.draft_tokens.size() &&
           request.draft_tokens[right] == token_at(request.family, request.tokens.size() + right)) {
      ++right;
    }
    const std::size_t first = request.computed / kBlockSize;
    const std::size_t written = request.computed + request.scheduled + request.draft_tokens.size();
    request.computed += request.scheduled;
    if (request.computed == request.tokens.size()) {
      request.tokens.insert(request.tokens.end(), request.draft_tokens.begin(),
                            request.draft_tokens.begin() + static_cast<std::ptrdiff_t>(right));
      request.accepted = right;
      totals_->drafts_right += right;
      request.computed += right;
      request.tokens.push_back(token_at(request.family, request.tokens.size()));
      request.new_tokens.push_back(request.tokens.back());
    }
    request.draft_tokens.clear();
    const auto keys = keys_of(request);
    for (std::size_t block = first; block * kBlockSize < written; ++block) {
      const bool is_full = (block + 1) * kBlockSize <= request.computed;
      for (std::uint32_t rank = 0; rank < world_.ranks.size(); ++rank) {
        world_.ranks[rank]->write(request.blocks[block], is_full ? number_of(keys[block], rank) : random_());
      }
    }
  }

  // At the end nothing is left, whatever happened.
  void wind_up() {
    for (const auto& rank : world_.ranks) {
      rank->stop(false);
    }
    for (auto request = requests_.begin(); request != requests_.end();) {
      const auto next = std::next(request);
      if (request->state != State::kFinishing) {
        end(request);
      }
      request = next;
    }
    const TimePoint last = steady_clock().now() + kConnectorPatience;
    while (world_->has_work() && !::testing::Test::HasFailure()) {
      count_saves(world_.step());
      take_outcomes();
      ASSERT_LT(steady_clock().now(), last) << "a transfer never ends";
      std::this_thread::yield();
    }
    EXPECT_EQ(free_.size(), kDeviceBlocks);
    EXPECT_TRUE(requests_.empty());
    take_outcomes();
    EXPECT_TRUE(counted_.empty()) << "the counts of all requests were told";
    const TokenReport report = world_->counts();
    EXPECT_EQ(report.total, sum_);
    EXPECT_TRUE(report.last_requests.adds_up());
    EXPECT_EQ(report.total.saved, world_->saves().saved * kBlockSize);
    ASSERT_TRUE(world_->manager().drain(kConnectorPatience).has_value());
    const PoolCounts counts = world_->manager().host()->counts();
    EXPECT_EQ(counts.available(), counts.total) << "blocks of the host tier have leaked";
    EXPECT_EQ(counts.pinned, 0);
    const SchedulerConnector::SaveStatus saves = world_->saves();
    totals_->saved_in_step += saves.in_step - saves.withdrawn;
    totals_->withdrawn += saves.withdrawn;
  }

  std::mt19937_64 random_;
  const LoadMode mode_;
  const bool gives_scheduled_tokens_;
  const bool fails_steps_;
  World world_;
  std::list<Request> requests_;
  std::vector<BlockId> free_;
  std::vector<RequestHandle> preempted_;
  std::map<RequestHandle, Counted> counted_;
  TokenCounts sum_ = {};  // of requests that have ended
  std::uint64_t next_id_ = 1;
  Totals* totals_ = nullptr;
};

// The cases that depend on the timing of copies and steps.
bool saw_all(const Totals& totals, LoadMode mode) {
  return totals.preempted > 0 && totals.loaded > 0 && totals.missing > 0 && totals.fences > 0 &&
         totals.drafts_right > 0 && (mode != LoadMode::kAsync || totals.put_off > 0);
}

// Runs `seeds` seeds, and on a busy machine more of them until every case has been seen.
void run_seeds(LoadMode mode, std::uint32_t ranks, std::uint64_t seeds) {
  Totals totals;
  const TimePoint last = steady_clock().now() + std::chrono::seconds(120);
  const auto go_on = [&](std::uint64_t seed) {
    return seed < seeds || (!saw_all(totals, mode) && steady_clock().now() < last);
  };
  for (std::uint64_t seed = 0; go_on(seed) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    RandomEngine(seed, mode, ranks).run(250, totals);
  }
  // Every case was seen.
  EXPECT_GT(totals.finished, 0);
  EXPECT_GT(totals.aborted, 0);
  EXPECT_GT(totals.preempted, 0);
  EXPECT_GT(totals.loaded, 0);
  EXPECT_GT(totals.missing, 0);
  EXPECT_GT(totals.fences, 0);
  if (mode == LoadMode::kAsync) {
    EXPECT_GT(totals.put_off, 0);
  }
  EXPECT_GT(totals.drafts_right, 0);
  EXPECT_GT(totals.failed_steps, 0);
  EXPECT_GT(totals.saved_in_step, 0);
  EXPECT_GT(totals.withdrawn, 0);
}

TEST(SchedulerModelTest, WhatIsLoadedIsWhatWasSavedByThatName) { run_seeds(LoadMode::kAsync, 1, 12); }
TEST(SchedulerModelTest, AlsoWithTwoRanks) { run_seeds(LoadMode::kAsync, 2, 8); }
TEST(SchedulerModelTest, AlsoWhereItIsLoadedInTheStep) { run_seeds(LoadMode::kInStep, 2, 8); }

}  // namespace
}  // namespace cairn
