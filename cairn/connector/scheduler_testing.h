// Shared by the tests of the scheduler's side: ranks that keep one number in the place of each block and carry out
// copies when the engine has reached their mark; and an engine's loop around a connector, step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/slot_testing.h"
#include "cairn/connector/worker_operations.h"
#include "cairn/transfer/in_step_mark.h"
#include "cairn/wire/local_leader.h"

namespace cairn::testing {

// Much longer than any test takes; only a defect reaches it.
inline constexpr std::chrono::seconds kConnectorPatience{20};

// One rank: holds copies until the engine has reached their mark, then makes them in any order, or fails them.
class NumberRank {
 public:
  NumberRank(LocalLeader& leader, const RankClaim& claim, std::uint64_t seed = 0)
      : claim_(claim), random_(seed + claim.rank) {
    thread_ = std::thread([this] { serve(); });
    join(leader);
  }
  NumberRank(const NumberRank&) = delete;
  NumberRank& operator=(const NumberRank&) = delete;
  ~NumberRank() {
    leave();
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void join(LocalLeader& leader) {
    auto port = leader.join(claim_, [this](std::uint32_t generation, const RankMessage& message) {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(generation, message);
      changed_.notify_all();
    });
    EXPECT_TRUE(port.has_value());
    const std::lock_guard lock(mutex_);
    port_ = *std::move(port);
    changed_.notify_all();
  }
  // As if its process were dead: its host memory is lost, and it does nothing more.
  void leave() {
    std::unique_ptr<LocalLeader::Port> port;
    {
      const std::lock_guard lock(mutex_);
      port = std::move(port_);
      copies_.clear();
    }
    port.reset();  // nothing more is delivered
    const std::lock_guard lock(mutex_);
    messages_.clear();
    numbers_[index_of(CacheLevel::kG2)].clear();
  }

  void reached(StepMark mark) {
    const std::lock_guard lock(mutex_);
    reached_ = std::max(reached_, mark);
    changed_.notify_all();
  }
  void fence(std::span<const BlockId> blocks, StepMark mark) {
    const std::lock_guard lock(mutex_);
    for (const BlockId block : blocks) {
      fences_[index_of(block)] = std::max(fences_[index_of(block)], mark);
    }
  }
  void write(BlockId block, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    numbers_[0][index_of(block)] = number;
  }
  std::uint64_t read(BlockId block) {
    const std::lock_guard lock(mutex_);
    return numbers_[0][index_of(block)];
  }
  // The next time it is welcomed it sends nothing until ready().
  void hold_back() {
    const std::lock_guard lock(mutex_);
    is_held_back_ = true;
  }
  // The leader that welcomed it last.
  LeaderId leader() {
    const std::lock_guard lock(mutex_);
    return leader_;
  }
  bool is_welcomed() {
    const std::lock_guard lock(mutex_);
    return welcomed_.has_value();
  }
  void ready() {
    const std::lock_guard lock(mutex_);
    is_held_back_ = false;
    port_->send(*std::exchange(welcomed_, {}), RankReady{.block_bytes = 64});
  }
  // This worker gets the broadcasts too; it outlives the rank.
  void listen(WorkerOperations& worker) {
    const std::lock_guard lock(mutex_);
    worker_ = &worker;
  }
  // Copies wait, whatever the engine does.
  void stop(bool stopped) {
    const std::lock_guard lock(mutex_);
    is_stopped_ = stopped;
    changed_.notify_all();
  }
  // This share of the blocks fails; the same share is damaged in host memory.
  void fail(double share) {
    const std::lock_guard lock(mutex_);
    share_failed_ = share;
  }
  bool has_heard(OperationId id) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(heard_, id) != heard_.end();
  }
  std::size_t times_heard(OperationId id) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count(heard_, id));
  }
  // The first device block of each copy to the device that it made.
  std::vector<BlockId> loads() {
    const std::lock_guard lock(mutex_);
    return loads_;
  }
  std::size_t held() {
    const std::lock_guard lock(mutex_);
    return copies_.size();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(
          lock, [this] { return is_ending_ || (port_ != nullptr && (!messages_.empty() || due() < copies_.size())); });
      if (is_ending_) {
        return;
      }
      if (!messages_.empty()) {
        const auto [generation, message] = std::move(messages_.front());
        messages_.pop_front();
        take(generation, message);
      } else {
        make(due());
      }
    }
  }
  // A copy whose mark the engine has reached. A block is one number here: an in-step save reads it when its step is computed.
  std::size_t due() {
    for (std::size_t i = 0; i < copies_.size() && !is_stopped_; ++i) {
      if (step_of(copies_[i].second.not_before) <= reached_) {
        return i;
      }
    }
    return copies_.size();
  }
  void take(std::uint32_t generation, const RankMessage& message) {
    if (const auto* welcome = std::get_if<RankWelcome>(&message)) {
      leader_ = welcome->leader;
      if (is_held_back_) {
        welcomed_ = generation;
      } else {
        port_->send(generation, RankReady{.block_bytes = 64});
      }
    } else if (const auto* ping = std::get_if<RankPing>(&message)) {
      port_->send(generation, RankPong{ping->number});
    } else if (const auto* notice = std::get_if<RankBroadcast>(&message)) {
      const Result<OperationOutcomes> outcomes = OperationOutcomes::decode(notice->bytes);
      ASSERT_TRUE(outcomes.has_value());
      for (const OperationOutcomes::Load& load : outcomes->loads) {
        heard_.push_back(load.id);
      }
      heard_.insert(heard_.end(), outcomes->saves.begin(), outcomes->saves.end());
      if (worker_ != nullptr) {
        worker_->receive(leader_, notice->bytes);
      }
    } else if (const auto* copy = std::get_if<RankTransfer>(&message)) {
      copies_.emplace_back(generation, *copy);
    } else if (const auto* cancel = std::get_if<RankCancel>(&message)) {
      const auto found = std::ranges::find_if(copies_, [&](const auto& c) { return c.second.id == cancel->id; });
      if (found != copies_.end()) {
        answer(found->first, found->second, {found->second.pairs.size(), BlockState::kCancelled}, {});
        copies_.erase(found);
      }
    }
  }
  void make(std::size_t which) {
    const auto [generation, copy] = copies_[which];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
    std::vector<BlockState> states;
    std::vector<BlockSums> sums;
    for (const BlockPair pair : copy.pairs) {
      const bool is_fenced = copy.from == CacheLevel::kG1 && step_of(copy.not_before) < fences_[pair.source];
      const double luck = std::uniform_real_distribution<double>()(random_);
      if (is_fenced || luck < share_failed_) {
        states.push_back(is_fenced ? BlockState::kCancelled : BlockState::kFailed);
        sums.emplace_back();
        continue;
      }
      const std::uint64_t number = numbers_[index_of(copy.from)][pair.source];
      const bool is_damaged = copy.to != CacheLevel::kG1 && luck > 1 - share_failed_;
      numbers_[index_of(copy.to)][pair.destination] = number + (is_damaged ? 1 : 0);
      states.push_back(BlockState::kDone);
      sums.push_back({.products = number, .words = 0});
    }
    if (copy.to == CacheLevel::kG1) {
      loads_.push_back(BlockId{copy.pairs.front().destination});
    }
    answer(generation, copy, std::move(states), std::move(sums));
  }
  void answer(std::uint32_t generation, const RankTransfer& copy, std::vector<BlockState> states,
              std::vector<BlockSums> sums) {
    sums.resize(states.size());
    const bool all_done = std::ranges::all_of(states, [](BlockState state) { return state == BlockState::kDone; });
    port_->send(generation, RankTransferOutcome{.id = copy.id,
                                                .states = std::move(states),
                                                .sums = std::move(sums),
                                                .error = all_done ? "" : "it was to fail"});
    port_->send(generation, RankSettled{copy.id});
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const RankClaim claim_;
  std::mt19937_64 random_;
  std::unique_ptr<LocalLeader::Port> port_;
  std::deque<std::pair<std::uint32_t, RankMessage>> messages_;
  std::deque<std::pair<std::uint32_t, RankTransfer>> copies_;
  std::array<std::map<std::uint32_t, std::uint64_t>, kCacheLevels> numbers_;
  std::map<std::uint32_t, StepMark> fences_;
  StepMark reached_;
  bool is_held_back_ = false;
  std::optional<std::uint32_t> welcomed_;
  LeaderId leader_;
  WorkerOperations* worker_ = nullptr;
  bool is_stopped_ = false;
  bool is_ending_ = false;
  double share_failed_ = 0;
  std::vector<OperationId> heard_;
  std::vector<BlockId> loads_;
  std::thread thread_;
};

// What a block of this key holds on a rank.
inline std::uint64_t number_of(const BlockKey& key, std::uint32_t rank) {
  return key.high_word() * 31 + key.low_word() * 17 + rank;
}

inline SchedulerConnector::Options small_options(std::uint32_t device = 64, std::uint32_t host = 64,
                                                 std::uint32_t ranks = 1) {
  SchedulerConnector::Options options;
  options.manager.block_size = kBlockSize;
  options.manager.model = {.name = "small", .layers = 2, .heads = 8, .head_size = 8, .element_type = "f16"};
  options.manager.device.blocks = device;
  options.manager.host.blocks = host;
  options.manager.onboard.weigh = false;  // this engine computes in no time, so that nothing would be worth loading
  options.ranks.ranks = ranks;
  return options;
}

// A connector with its ranks, and the steps that an engine makes with them.
class World {
 public:
  explicit World(const SchedulerConnector::Options& options, std::uint64_t seed = 0) {
    Result<std::unique_ptr<SchedulerConnector>> made = SchedulerConnector::make(options);
    CAIRN_CHECK(made.has_value(), made ? "" : made.error().message);
    connector = *std::move(made);
    for (std::uint32_t rank = 0; rank < options.ranks.ranks.count(); ++rank) {
      ranks.push_back(std::make_unique<NumberRank>(connector->local_leader(),
                                                   RankClaim{.rank = rank, .ranks = options.ranks.ranks}, seed));
    }
    EXPECT_TRUE(connector->wait_for_ranks(kConnectorPatience).has_value());
  }
  ~World() { connector.reset(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  SchedulerConnector* operator->() const { return connector.get(); }

  RequestHandle add(const RequestId& id, std::size_t prompt, Token first = 100) {
    return *connector->add(id, {.tokens = tokens(prompt, first)});
  }
  // Builds, and the ranks begin: fences, loads. Not yet computed.
  IterationMetadata begin(std::vector<SchedulerConnector::Scheduled> scheduled,
                          std::vector<RequestHandle> preempted = {}) {
    std::vector<std::byte> bytes;
    EXPECT_TRUE(
        connector->build({.number = ++iteration, .preempted = preempted, .scheduled = scheduled}, bytes).has_value());
    Result<IterationMetadata> metadata = IterationMetadata::decode(bytes);
    EXPECT_TRUE(metadata.has_value());
    EXPECT_EQ(metadata->iteration, iteration);
    for (const auto& rank : ranks) {
      for (const OperationPtr& save : metadata->fences) {
        rank->fence(save->block_ids, StepMark::begun(iteration));
      }
      if (!is_computed) {  // as WorkerSteps
        rank->fence(in_step_saves, StepMark::begun(iteration));
      }
      rank->reached(StepMark::begun(iteration));
    }
    in_step_saves.clear();
    for (const OperationPtr& save : metadata->saves) {
      if (save->in_step) {
        in_step_saves.insert(in_step_saves.end(), save->block_ids.begin(), save->block_ids.end());
      }
    }
    is_computed = false;
    return *std::move(metadata);
  }
  void end() {
    is_computed = true;
    for (const auto& rank : ranks) {
      rank->reached(StepMark::computed(iteration));
    }
  }
  IterationMetadata step(std::vector<SchedulerConnector::Scheduled> scheduled = {},
                         std::vector<RequestHandle> preempted = {}) {
    IterationMetadata metadata = begin(std::move(scheduled), std::move(preempted));
    end();
    return metadata;
  }
  // The engine computes these blocks of the keys.
  void compute(std::span<const BlockKey> keys, std::span<const BlockId> blocks) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
        ranks[rank]->write(blocks[i], number_of(keys[i], rank));
      }
    }
  }
  [[nodiscard]] ::testing::AssertionResult hold(std::span<const BlockKey> keys, std::span<const BlockId> blocks) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank]->read(blocks[i]) != number_of(keys[i], rank)) {
          return ::testing::AssertionFailure() << "block " << i << " on rank " << rank << " holds something else";
        }
      }
    }
    return ::testing::AssertionSuccess();
  }
  // Takes results until the condition holds; they are added up.
  void take_until(const std::function<bool()>& condition) {
    const TimePoint end = steady_clock().now() + kConnectorPatience;
    for (;;) {
      SchedulerConnector::Outcomes more = connector->take_outcomes();
      loaded.insert(loaded.end(), more.loaded.begin(), more.loaded.end());
      released.insert(released.end(), more.released.begin(), more.released.end());
      ended.insert(ended.end(), more.ended.begin(), more.ended.end());
      if (condition()) {
        return;
      }
      ASSERT_LT(steady_clock().now(), end) << "the condition does not become true";
      std::this_thread::yield();
    }
  }
  // Steps with nothing to run, until nothing is in flight.
  void drain() {
    const TimePoint end = steady_clock().now() + kConnectorPatience;
    while (connector->has_work()) {
      step();
      take_until([] { return true; });
      ASSERT_LT(steady_clock().now(), end) << "an operation does not end";
      std::this_thread::yield();
    }
  }
  // A request runs from its beginning to its end, and its prompt is saved from these blocks on.
  void save_prompt(const RequestId& id, std::size_t prompt, std::uint32_t first_block = 0, Token first = 100) {
    const RequestHandle request = add(id, prompt, first);
    const auto keys = keys_of(prompt, first);
    const auto blocks = device_blocks(prompt / kBlockSize + 1, first_block);
    begin({{.request = request, .new_blocks = blocks}});
    compute(keys, blocks);
    end();
    EXPECT_TRUE(*connector->finish(request, prompt));
    drain();
  }
  [[nodiscard]] std::vector<BlockKey> keys_of(std::size_t prompt, Token first = 100) const {
    const TokenBlockSequence sequence =
        *TokenBlockSequence::create(tokens(prompt, first), kBlockSize, connector->manager().hasher());
    return {sequence.keys().begin(), sequence.keys().end()};
  }

  std::unique_ptr<SchedulerConnector> connector;
  std::vector<std::unique_ptr<NumberRank>> ranks;
  std::uint64_t iteration = 0;
  std::vector<BlockId> in_step_saves;  // of the latest iteration
  bool is_computed = true;             // the latest iteration
  std::vector<SchedulerConnector::Outcomes::Loaded> loaded;
  std::vector<RequestId> released;
  std::vector<SchedulerConnector::Outcomes::Ended> ended;
};

}  // namespace cairn::testing
