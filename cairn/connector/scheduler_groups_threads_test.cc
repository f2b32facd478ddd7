// Models with layer groups: one block table for each group, windows that move on, checkpoints, null blocks. First what an engine
// sees step by step, then a random engine whose blocks are checked against a model that knows what every block has to hold.
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using When = SchedulerConnector::Match::When;
using Scheduled = SchedulerConnector::Scheduled;

using Tables = std::vector<std::vector<BlockId>>;

std::vector<std::span<const BlockId>> spans_of(const Tables& tables) { return {tables.begin(), tables.end()}; }

SchedulerConnector::Options options_of(std::string_view groups, std::uint32_t device = 64, std::uint32_t host = 64,
                                       std::uint32_t ranks = 1) {
  SchedulerConnector::Options options = small_options(device, host, ranks);
  EXPECT_TRUE(options.manager.set("model.groups", groups).has_value());
  return options;
}

class GroupWorld : public World {
 public:
  using World::World;

  [[nodiscard]] const CacheGroups& groups() const { return connector->manager().groups(); }
  // The engine computes every block of the tables that the first tokens fill.
  void compute_tables(std::span<const BlockKey> keys, const Tables& tables, std::size_t from, std::size_t to) {
    for (std::uint32_t group = 0; group < tables.size(); ++group) {
      const std::size_t size = groups()[group].block_size;
      for (std::size_t block = from / size; block < to / size; ++block) {
        if (tables[group][block] != kNoBlock) {
          compute(std::vector{groups().key({group, static_cast<std::uint32_t>(block)}, keys)},
                  std::vector{tables[group][block]});
        }
      }
    }
  }
  // Whether all that is needed after so many tokens is there.
  [[nodiscard]] ::testing::AssertionResult hold_tables(std::span<const BlockKey> keys, const Tables& tables,
                                                       std::size_t tokens) {
    for (std::uint32_t group = 0; group < tables.size(); ++group) {
      const std::size_t end = tokens / groups()[group].block_size;
      for (std::size_t block = groups().first_needed(group, tokens); block < end; ++block) {
        if (tables[group][block] == kNoBlock) {
          return ::testing::AssertionFailure() << "block " << block << " of group " << group << " is not there";
        }
        const auto right = hold(std::vector{groups().key({group, static_cast<std::uint32_t>(block)}, keys)},
                                std::vector{tables[group][block]});
        if (!right) {
          return ::testing::AssertionFailure() << "group " << group << ", block " << block << ": " << right.message();
        }
      }
    }
    return ::testing::AssertionSuccess();
  }
};

std::vector<BlockId> ids(std::initializer_list<int> numbers) {
  std::vector<BlockId> blocks;
  for (const int number : numbers) {
    blocks.push_back(number < 0 ? kNoBlock : BlockId{static_cast<std::uint32_t>(number)});
  }
  return blocks;
}

// As vLLM does with a window of 9 tokens: after a prompt of 24, the next request loads all blocks of the full group and two
// of the window, and has null blocks before them.
TEST(SchedulerGroupsTest, APromptIsLoadedIntoTheTablesOfItsGroups) {
  GroupWorld world(options_of("global:full, local:sliding:9"));
  const auto keys = world.keys_of(26);
  const RequestHandle first = world.add(std::uint64_t{1}, 26);
  EXPECT_EQ(world->match(first, 0)->tokens, 0U);
  const Tables tables = {ids({0, 1, 2, 3, 4, 5, 6}), ids({10, 11, 12, 13, 14, 15, 16})};
  const auto spans = spans_of(tables);
  world.begin({{.request = first, .new_group_blocks = spans}});
  world.compute_tables(keys, tables, 0, 26);
  world.end();
  EXPECT_TRUE(*world->finish(first, 26));
  world.drain();
  EXPECT_THAT(world.released, ElementsAre(RequestId(std::uint64_t{1})));
  EXPECT_EQ(world->saves().saved, 8U);  // six, and two in the window at the end
  EXPECT_EQ(world->counts().total.saved, 24U);

  const RequestHandle second = world.add(std::uint64_t{2}, 26);
  const auto match = world->match(second, 0);
  EXPECT_EQ(match->tokens, 24U);
  EXPECT_EQ(match->when, When::kLater);
  const Tables more = {ids({20, 21, 22, 23, 24, 25, 26}), ids({-1, -1, -1, -1, 34, 35, 36})};
  CAIRN_SLOT_OK(world->allocated_groups(second, spans_of(more), 0, 24));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].tokens, 24U);
  EXPECT_EQ(world.loaded[0].missing, 0U);
  EXPECT_TRUE(world.hold_tables(keys, more, 24));
  EXPECT_TRUE(world->counts().total.adds_up());
  EXPECT_EQ(world->counts().total.loaded_host, 24U);
}

TEST(SchedulerGroupsTest, AStateIsSavedAtTheEndOfThePromptAndOfTheRequest) {
  GroupWorld world(options_of("global:full, ssm:state"));
  const auto keys = world.keys_of(40);
  const RequestHandle request = world.add(std::uint64_t{1}, 18);
  const Tables tables = {ids({0, 1, 2, 3, 4}), ids({10, 11, 12, 13, 14})};
  const auto spans = spans_of(tables);
  world.begin({{.request = request, .new_group_blocks = spans}});
  world.compute_tables(keys, tables, 0, 18);
  world.end();
  // Decodes to 29 tokens: seven full blocks, of which the state is kept after four and after seven.
  const Tables more = {ids({5, 6, 7}), ids({15, 16, 17})};
  const auto more_spans = spans_of(more);
  const Tables all = {ids({0, 1, 2, 3, 4, 5, 6, 7}), ids({10, 11, 12, 13, 14, 15, 16, 17})};
  std::vector<Token> generated = tokens(11, 118);
  world.begin({{.request = request, .computed_tokens = 18, .new_tokens = generated, .new_group_blocks = more_spans}});
  world.compute_tables(keys, all, 16, 29);
  world.end();
  EXPECT_TRUE(*world->finish(request, 29));
  world.drain();
  EXPECT_EQ(world->saves().saved, 9U);
  for (const auto& [prompt, found] : {std::pair{27, 16}, {29, 28}, {40, 28}, {18, 16}, {16, 0}}) {
    const RequestHandle next =
        world.add(std::uint64_t{100} + static_cast<std::uint64_t>(prompt), static_cast<std::size_t>(prompt));
    EXPECT_EQ(world->match(next, 0)->tokens, static_cast<std::size_t>(found)) << prompt;
  }
}

// The second request has the full blocks of the first, but no window where it branches off. It saves that window, for the third.
TEST(SchedulerGroupsTest, AWindowIsKeptWhereRequestsBranchOff) {
  GroupWorld world(options_of("global:full, local:sliding:5"));
  const auto run = [&](std::uint64_t id, const std::vector<Token>& prompt, int first) {
    const RequestHandle request = *world->add(id, {.tokens = prompt});
    const std::size_t found = world->match(request, 0)->tokens;
    Tables tables(2);
    for (std::size_t i = 0; i * kBlockSize < prompt.size(); ++i) {
      tables[0].push_back(BlockId{static_cast<std::uint32_t>(first + static_cast<int>(i))});
      tables[1].push_back(BlockId{static_cast<std::uint32_t>(first + 10 + static_cast<int>(i))});
    }
    const auto spans = spans_of(tables);
    const TokenBlockSequence sequence = *TokenBlockSequence::create(prompt, kBlockSize, world->manager().hasher());
    world.begin({{.request = request, .new_group_blocks = spans}});
    world.compute_tables(sequence.keys(), tables, 0, prompt.size());
    world.end();
    EXPECT_TRUE(world->finish(request, prompt.size()).has_value());
    world.drain();
    return found;
  };
  std::vector<Token> prompt = tokens(30);
  EXPECT_EQ(run(1, prompt, 0), 0U);
  for (int other = 2; other <= 3; ++other) {  // the same for 17 tokens
    for (std::size_t i = 17; i < prompt.size(); ++i) {
      prompt[i] = static_cast<Token>(1000 * other) + static_cast<Token>(i);
    }
    EXPECT_EQ(run(static_cast<std::uint64_t>(other), prompt, 20), other == 2 ? 0U : 16U);
  }
}

TEST(SchedulerGroupsTest, BlocksThatLeftTheWindowAreTheEnginesAgain) {
  GroupWorld world(options_of("global:full, local:sliding:5"));
  const RequestHandle first = world.add(std::uint64_t{1}, 20);
  const RequestHandle second = world.add(std::uint64_t{2}, 8, 900);
  const Tables tables = {ids({0, 1, 2, 3, 4, 5}), ids({10, 11, 12, 13, 14, 15})};
  const auto spans = spans_of(tables);
  world.step({{.request = first, .new_group_blocks = spans}});
  // After 20 tokens blocks 0 to 3 of the window are of no use: the second request, which comes first, gets two of them.
  const Tables reused = {ids({20, 21, 22}), ids({10, 12, 30})};
  const auto reused_spans = spans_of(reused);
  const std::vector<Token> generated = tokens(1, 120);
  const IterationMetadata metadata = world.step({{.request = second, .new_group_blocks = reused_spans},
                                                 {.request = first, .computed_tokens = 20, .new_tokens = generated}});
  EXPECT_TRUE(world->refused().empty());
  // The same prompt could be loaded up to token 16, for which block 3 of the window is saved before the engine writes to it.
  ASSERT_EQ(metadata.fences.size(), 1U);
  EXPECT_THAT(metadata.fences[0]->block_ids, ElementsAre(BlockId{13}));
  // Block 4 is needed still.
  const RequestHandle third = world.add(std::uint64_t{3}, 8, 1900);
  const Tables taken = {ids({40, 41}), ids({14, 43})};
  const auto taken_spans = spans_of(taken);
  world.step({{.request = third, .new_group_blocks = taken_spans}});
  ASSERT_EQ(world->refused().size(), 1U);
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("device block 14 of request 3 is in use by request 1"));
}

TEST(SchedulerGroupsTest, RefusesWhatDoesNotFitTheGroups) {
  const auto error = [](SchedulerConnector::Options options) {
    return SchedulerConnector::make(std::move(options)).error().message;
  };
  SchedulerConnector::Options in_step = options_of("a:full, b:state");
  in_step.load = LoadMode::kInStep;
  EXPECT_THAT(error(in_step), HasSubstr("use LoadMode::kAsync"));
  SchedulerConnector::Options recorded = options_of("a:full, b:state");
  recorded.manager.record.path = "/tmp/calls";
  EXPECT_THAT(error(recorded), HasSubstr("remove record.path"));

  GroupWorld world(options_of("a:full, b:sliding:5"));
  const RequestHandle request = world.add(std::uint64_t{1}, 20);
  const std::vector<BlockId> one = ids({1, 2});
  EXPECT_THAT(world->allocated(request, one, 0, 0).error().message, HasSubstr("allocated_groups()"));
  const auto refused = [&](const Tables& tables) {
    const Status status = world->allocated_groups(request, spans_of(tables), 0, 0);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(refused({ids({1})}), HasSubstr("1 lists of device blocks for 2 layer groups"));
  EXPECT_THAT(refused({ids({1, -1}), ids({2, 3})}), HasSubstr("group 'a' is full"));
  EXPECT_THAT(refused({ids({1, 2}), ids({3, 1})}), HasSubstr("device block 1 is listed twice"));
  EXPECT_THAT(refused({ids({1, 2}), ids({3, 99})}), HasSubstr("device block 99 is beyond the 64 blocks"));
  EXPECT_EQ(refused({ids({1, 2}), ids({-1, 3})}), "");

  GroupWorld plain(small_options());
  const RequestHandle other = plain.add(std::uint64_t{1}, 20);
  EXPECT_THAT(plain->allocated_groups(other, spans_of({ids({1})}), 0, 0).error().message, HasSubstr("model.groups"));
}

struct Totals {
  std::size_t finished = 0;
  std::size_t aborted = 0;
  std::size_t preempted = 0;
  std::size_t loaded = 0;   // tokens
  std::size_t missing = 0;  // tokens
  std::size_t fences = 0;
};

// An engine that keeps one pool of device blocks for all groups, frees what has left a window when it next schedules the
// request, and has checkpoints only where a chunk ends at the end of a block.
class HybridEngine {
 public:
  HybridEngine(std::string_view groups, std::uint64_t seed, std::uint32_t ranks)
      : random_(seed), world_(options(groups, ranks), seed), groups_(world_.groups()) {
    for (std::uint32_t i = 0; i < kDeviceBlocks; ++i) {
      free_.push_back(BlockId{i});
    }
  }

  void run(std::size_t iterations, Totals& totals) {
    totals_ = &totals;
    for (std::size_t i = 0; i < iterations && !::testing::Test::HasFailure(); ++i) {
      disturb();
      take_outcomes();
      if (requests_.size() < 6 && below(2) == 0) {
        add();
      }
      iterate();
      if (below(4) == 0) {
        let_copies_end();
      }
    }
    wind_up();
  }

 private:
  static constexpr std::uint32_t kDeviceBlocks = 160;
  static constexpr std::size_t kMostTokens = 90;

  struct Request {
    RequestHandle handle{};
    RequestId id;
    Token family = 0;
    std::size_t target = 0;
    std::vector<Token> tokens = {};
    std::size_t computed = 0;
    Tables tables = {};
    enum class State : std::uint8_t { kWaiting, kLoading, kRunning, kFinishing } state = State::kWaiting;
    std::vector<std::size_t> told = {};  // of each table
    std::vector<Token> new_tokens = {};  // not passed in yet
    std::size_t scheduled = 0;           // tokens in this iteration
  };
  using State = Request::State;

  static SchedulerConnector::Options options(std::string_view groups, std::uint32_t ranks) {
    SchedulerConnector::Options options = options_of(groups, kDeviceBlocks, 200, ranks);
    options.loading_blocks = 40;
    options.ask_again = 3;
    options.manager.health.failures = 1000000;
    return options;
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }
  // Requests of a family have the same first tokens, and branch off somewhere.
  static Token token_at(const Request& request, std::size_t position) {
    const bool is_common = position < 20 + 10 * (request.target % 3);
    return static_cast<Token>(request.family * 100000 + position * 7 + (is_common ? 1 : 1 + request.target));
  }
  [[nodiscard]] std::vector<BlockKey> keys_of(const Request& request) const {
    const TokenBlockSequence sequence =
        *TokenBlockSequence::create(request.tokens, kBlockSize, world_->manager().hasher());
    return {sequence.keys().begin(), sequence.keys().end()};
  }
  Request* find(RequestHandle handle) {
    const auto found = std::ranges::find(requests_, handle, &Request::handle);
    return found != requests_.end() ? &*found : nullptr;
  }

  void disturb() {
    for (const auto& rank : world_.ranks) {
      if (below(4) == 0) {
        rank->stop(below(3) == 0);
      }
      if (below(20) == 0) {
        rank->fail(below(2) == 0 ? 0.05 : 0);
      }
    }
    if (below(60) == 0) {
      const auto which = static_cast<std::uint32_t>(below(world_.ranks.size()));
      world_.ranks[which]->leave();
      world_.ranks[which]->join(world_->local_leader());
    }
  }

  void add() {
    Request request{.id = RequestId(std::uint64_t{next_id_++}), .family = static_cast<Token>(below(3))};
    const std::size_t prompt = 1 + below(60);
    request.target = std::min(prompt + 1 + below(30), kMostTokens);
    for (std::size_t i = 0; i < prompt; ++i) {
      request.tokens.push_back(token_at(request, i));
    }
    request.tables.resize(groups_.size());
    request.told.resize(groups_.size());
    request.handle = *world_->add(request.id, {.tokens = request.tokens});
    requests_.push_back(std::move(request));
  }

  void take_outcomes() {
    const SchedulerConnector::Outcomes results = world_->take_outcomes();
    for (const auto& loaded : results.loaded) {
      Request& request = *find(loaded.request);
      ASSERT_EQ(loaded.tokens + loaded.missing, request.computed);
      EXPECT_TRUE(world_.hold_tables(keys_of(request), request.tables, loaded.tokens))
          << "loaded, request " << request.id.to_string();
      totals_->loaded += loaded.tokens;
      totals_->missing += loaded.missing;
      request.state = State::kRunning;
      request.computed = loaded.tokens;
      if (loaded.missing > 0) {
        preempt(request);  // its tables have no blocks for what it has to compute now
      }
    }
    for (const auto& ended : results.ended) {
      EXPECT_TRUE(ended.counts.adds_up());
    }
    for (const RequestId& id : results.released) {
      const auto found = std::ranges::find(requests_, id, &Request::id);
      ASSERT_NE(found, requests_.end());
      ASSERT_EQ(found->state, State::kFinishing);
      remove(found);
    }
  }
  void give_back(Request& request) {
    for (std::vector<BlockId>& table : request.tables) {
      for (const BlockId block : table) {
        if (block != kNoBlock) {
          free_.push_back(block);
        }
      }
      table.clear();
    }
    std::ranges::fill(request.told, 0);
  }
  void remove(std::list<Request>::iterator request) {
    give_back(*request);
    requests_.erase(request);
  }
  void end(std::list<Request>::iterator request) {
    const bool tells = request->state == State::kRunning && below(4) != 0;
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
  void preempt(Request& request) {
    ++totals_->preempted;
    give_back(request);
    request.computed = 0;
    request.scheduled = 0;
    request.state = State::kWaiting;
    preempted_.push_back(request.handle);
  }

  BlockId take_block() {
    const std::size_t which = below(free_.size());
    std::swap(free_[which], free_.back());
    const BlockId block = free_.back();
    free_.pop_back();
    return block;
  }
  // Blocks for tokens up to `end`. Those that `skipped` tokens before it no longer need are not there; states are where the
  // chunk ends, and where one is loaded.
  bool grow(Request& request, std::size_t skipped, std::size_t end, std::size_t loaded) {
    if (free_.size() < 6 * groups_.size() + end) {
      return false;
    }
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      const std::size_t size = groups_[group].block_size;
      std::vector<BlockId>& table = request.tables[group];
      while (table.size() * size < end) {
        const std::size_t block_end = (table.size() + 1) * size;
        const bool is_state = groups_[group].kind == GroupKind::kState;
        const bool is_there = is_state ? block_end == end || block_end == loaded || block_end > end
                                       : table.size() >= groups_.first_needed(group, skipped);
        table.push_back(is_there ? take_block() : kNoBlock);
      }
    }
    return true;
  }
  // What vLLM does when it schedules a request.
  void free_skipped(Request& request) {
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      if (groups_[group].kind != GroupKind::kSliding && groups_[group].kind != GroupKind::kChunked) {
        continue;
      }
      std::vector<BlockId>& table = request.tables[group];
      for (std::size_t i = 0; i < std::min(table.size(), groups_.first_needed(group, request.computed)); ++i) {
        if (table[i] != kNoBlock) {
          free_.push_back(std::exchange(table[i], kNoBlock));
        }
      }
    }
  }

  void iterate() {
    for (auto request = requests_.begin(); request != requests_.end();) {
      const auto next = std::next(request);
      request->scheduled = 0;
      const bool is_done = request->state == State::kRunning && request->tokens.size() >= request->target;
      const bool is_told = std::ranges::find(preempted_, request->handle) == preempted_.end();
      if (is_told && (is_done || (below(80) == 0 && request->state != State::kFinishing))) {
        ++(is_done ? totals_->finished : totals_->aborted);
        end(request);
      }
      request = next;
    }
    for (Request& request : requests_) {
      if (request.state == State::kRunning && below(10) != 0) {
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
  void run_on(Request& request) {
    const std::size_t left = request.tokens.size() - request.computed;
    const std::size_t count = left == 1 ? 1 : 1 + below(left);
    if (below(40) == 0) {
      preempt(request);
      return;
    }
    free_skipped(request);
    if (!grow(request, request.computed, request.computed + count, 0)) {
      preempt(request);
      return;
    }
    request.scheduled = count;
  }
  void start(Request& request) {
    const auto match = world_->match(request.handle, 0);
    ASSERT_TRUE(match.has_value()) << match.error().to_string();
    const std::size_t loaded = below(8) == 0 ? 0 : match->tokens;
    const std::size_t count = loaded == 0 ? 1 + below(request.tokens.size()) : 0;
    // A load has room for what it brings; the rest is allocated when it has ended.
    if (match->when == When::kAskAgain || !grow(request, loaded, loaded + count, loaded)) {
      return;
    }
    if (loaded > 0 || below(2) == 0) {
      CAIRN_SLOT_OK(world_->allocated_groups(request.handle, spans_of(request.tables), 0, loaded));
      for (std::uint32_t group = 0; group < groups_.size(); ++group) {
        request.told[group] = request.tables[group].size();
      }
    }
    request.computed = loaded;
    request.scheduled = count;
    request.state = loaded > 0 ? State::kLoading : State::kRunning;
  }

  void step() {
    std::list<std::vector<std::span<const BlockId>>> spans;
    std::vector<Scheduled> scheduled;
    for (Request& request : requests_) {
      if (request.scheduled == 0) {
        continue;
      }
      std::vector<std::span<const BlockId>>& fresh = spans.emplace_back();
      for (std::uint32_t group = 0; group < groups_.size(); ++group) {
        fresh.push_back(std::span<const BlockId>(request.tables[group]).subspan(request.told[group]));
        request.told[group] = request.tables[group].size();
      }
      scheduled.push_back({.request = request.handle,
                           .computed_tokens = request.computed,
                           .new_tokens = request.new_tokens,
                           .new_group_blocks = fresh,
                           .scheduled_tokens = request.scheduled});
    }
    std::ranges::shuffle(scheduled, random_);
    const IterationMetadata metadata = world_.begin(scheduled, std::exchange(preempted_, {}));
    totals_->fences += metadata.fences.size();
    for (const auto& refused : world_->refused()) {
      ADD_FAILURE() << refused.error.to_string();
    }
    for (Request& request : requests_) {
      if (request.scheduled > 0) {
        request.new_tokens.clear();
        compute(request);
      }
    }
    world_.end();
  }
  // What the next token sees is there and right; a running state is the engine's own affair.
  void expect_context(const Request& request) {
    const auto keys = keys_of(request);
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      const std::size_t end = request.computed / groups_[group].block_size;
      for (std::size_t block = groups_.first_needed(group, request.computed);
           groups_[group].kind != GroupKind::kState && block < end; ++block) {
        EXPECT_TRUE(world_.hold(std::vector{groups_.key({group, static_cast<std::uint32_t>(block)}, keys)},
                                std::vector{request.tables[group][block]}))
            << "request " << request.id.to_string() << ", group " << group << ", block " << block;
      }
    }
  }
  void compute(Request& request) {
    expect_context(request);
    const std::size_t from = request.computed;
    request.computed += request.scheduled;
    if (request.computed == request.tokens.size()) {
      request.tokens.push_back(token_at(request, request.tokens.size()));
      request.new_tokens.push_back(request.tokens.back());
    }
    const auto keys = keys_of(request);
    for (std::uint32_t group = 0; group < groups_.size(); ++group) {
      const std::size_t size = groups_[group].block_size;
      for (std::size_t block = from / size; block * size < request.computed; ++block) {
        if (request.tables[group][block] == kNoBlock) {
          continue;
        }
        const bool is_full = (block + 1) * size <= request.computed;
        const BlockKey key = is_full ? groups_.key({group, static_cast<std::uint32_t>(block)}, keys)
                                     : BlockKey::root(SequenceHash{random_()}).value();
        world_.compute(std::vector{key}, std::vector{request.tables[group][block]});
      }
    }
  }

  // Iterations that compute nothing, until no copy is in flight: this engine is faster than its ranks.
  void let_copies_end() {
    for (const auto& rank : world_.ranks) {
      rank->stop(false);
    }
    const TimePoint last = steady_clock().now() + kConnectorPatience;
    while (world_->has_work() && !::testing::Test::HasFailure()) {
      world_.step({}, std::exchange(preempted_, {}));
      take_outcomes();
      ASSERT_LT(steady_clock().now(), last) << "a transfer never ends";
      std::this_thread::yield();
    }
  }
  void wind_up() {
    for (auto request = requests_.begin(); request != requests_.end();) {
      const auto next = std::next(request);
      if (request->state != State::kFinishing) {
        end(request);
      }
      request = next;
    }
    let_copies_end();
    EXPECT_EQ(free_.size(), kDeviceBlocks);
    EXPECT_TRUE(requests_.empty());
  }

  std::mt19937_64 random_;
  GroupWorld world_;
  const CacheGroups& groups_;
  std::vector<BlockId> free_;
  std::list<Request> requests_;
  std::vector<RequestHandle> preempted_;
  std::uint64_t next_id_ = 1;
  Totals* totals_ = nullptr;
};

TEST(SchedulerGroupsModelTest, WhatIsLoadedIsWhatComputingWouldGive) {
  Totals totals;
  const char* const models[] = {
      "global:full, local:sliding:9", "local:sliding:7, global:full@8",
      "global:full, ssm:state",       "a:full, b:sliding:12, c:chunked:16, d:state@8",
      "global:full, near:chunked:8",  "only:sliding:6",
      "a:full, b:full, c:sliding:30",
  };
  for (std::uint64_t seed = 0; seed < 28 && !HasFailure(); ++seed) {
    const char* const groups = models[seed % std::size(models)];
    SCOPED_TRACE(str_cat("seed ", seed, ", ", groups));
    HybridEngine(groups, seed, 1 + static_cast<std::uint32_t>(seed % 2)).run(220, totals);
  }
  EXPECT_GT(totals.finished, 200U);
  EXPECT_GT(totals.aborted, 20U);
  EXPECT_GT(totals.preempted, 50U);
  EXPECT_GT(totals.loaded, 500U);
  EXPECT_GT(totals.missing, 0U);
  EXPECT_GT(totals.fences, 0U);
}

}  // namespace
}  // namespace cairn
