// For tests of a leader: plans between tiers that hold no bytes, transfers whose end can be waited for, and ranks of this
// process that answer by hand.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/layout/layout_testing.h"
#include "cairn/leader/leader.h"
#include "cairn/leader/leader_transfers.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn::testing {

// Much longer than any test takes; only a defect reaches it.
inline constexpr std::chrono::seconds kPatience{20};

inline CopyPlanPtr rank_plan(MemoryKind from, MemoryKind to, std::uint32_t blocks = 64) {
  const KvShape shape{.layers = 1, .kv = 2, .page_size = 2, .heads = 1, .head_size = 8, .element_bits = 16};
  const BlockLayout::Options options{.shape = shape, .blocks = blocks};
  return plan_between(TestLayout::make(options, from).layout(), TestLayout::make(options, to).layout());
}

// The outcomes of transfers, by name.
class TransferLog {
 public:
  Transfer transfer(const std::string& name, CopyPlanPtr plan, std::uint32_t blocks,
                    TimePoint deadline = TimePoint::max()) {
    return {.plan = std::move(plan),
            .blocks = same_blocks(blocks),
            .deadline = deadline,
            .done =
                [this, name](TransferOutcome&& outcome) {
                  const std::lock_guard lock(mutex_);
                  outcomes_[name] = std::move(outcome);
                  changed_.notify_all();
                },
            .settled =
                [this, name] {
                  const std::lock_guard lock(mutex_);
                  settled_[name] = true;
                  changed_.notify_all();
                }};
  }
  TransferOutcome outcome(const std::string& name) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return outcomes_.contains(name); })) << name;
    return outcomes_[name];
  }
  std::vector<BlockState> states(const std::string& name) {
    std::vector<BlockState> all;
    for (const BlockOutcome& block : outcome(name).blocks) {
      all.push_back(block.state);
    }
    return all;
  }
  void wait_settled(const std::string& name) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return settled_.contains(name); })) << name;
  }
  bool is_done(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return outcomes_.contains(name);
  }
  bool is_settled(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return settled_.contains(name);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, TransferOutcome> outcomes_;
  std::map<std::string, bool> settled_;
};

inline RankTransferOutcome all_done(const RankTransfer& copy, std::uint64_t products = 1) {
  RankTransferOutcome answer;
  answer.id = copy.id;
  answer.states.assign(copy.pairs.size(), BlockState::kDone);
  answer.sums.assign(copy.pairs.size(), {.products = products, .words = 0});
  return answer;
}

inline RankTransferOutcome all_failed(const RankTransfer& copy, std::string error) {
  RankTransferOutcome answer;
  answer.id = copy.id;
  answer.states.assign(copy.pairs.size(), BlockState::kFailed);
  answer.sums.resize(copy.pairs.size());
  answer.error = std::move(error);
  return answer;
}

// A rank of this process that does nothing by itself except, if enabled, answer pings.
class FakeRank {
 public:
  FakeRank(Leader& leader, std::uint32_t rank) {
    Result<std::unique_ptr<Leader::Port>> port =
        leader.join({.rank = rank, .ranks = leader.ranks()},
                    [this](std::uint32_t generation, const RankMessage& message) { take(generation, message); });
    EXPECT_TRUE(port.has_value()) << port.error().to_string();
    const std::lock_guard lock(mutex_);
    port_ = *std::move(port);
    changed_.notify_all();
  }
  // Joins and is ready.
  static std::unique_ptr<FakeRank> ready(Leader& leader, std::uint32_t rank) {
    auto fake = std::make_unique<FakeRank>(leader, rank);
    fake->next<RankWelcome>();
    fake->send(RankReady{.block_bytes = 64});
    return fake;
  }
  FakeRank(const FakeRank&) = delete;
  FakeRank& operator=(const FakeRank&) = delete;
  ~FakeRank() { leave(); }

  void leave() {
    std::unique_ptr<Leader::Port> port;
    {
      const std::lock_guard lock(mutex_);
      port = std::move(port_);
    }
  }
  // The next message, which has to be of this kind.
  template <typename Message>
  Message next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !messages_.empty(); })) {
      ADD_FAILURE() << "nothing was sent";
      return {};
    }
    RankMessage message = std::move(messages_.front());
    messages_.pop_front();
    if (auto* wanted = std::get_if<Message>(&message)) {
      return std::move(*wanted);
    }
    ADD_FAILURE() << "a message of kind " << message.index() << " was sent";
    return {};
  }
  bool has_message() {
    const std::lock_guard lock(mutex_);
    return !messages_.empty();
  }
  void send(const RankMessage& message) { send_as(generation(), message); }
  void send_as(std::uint32_t generation, const RankMessage& message) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return port_ != nullptr; });
    Leader::Port* port = port_.get();
    lock.unlock();
    port->send(generation, message);
  }
  void answer(const RankTransferOutcome& answer) {
    send(answer);
    send(RankSettled{answer.id});
  }
  std::uint32_t generation() {
    const std::lock_guard lock(mutex_);
    return generation_;
  }
  void keep_pings() {
    const std::lock_guard lock(mutex_);
    keeps_pings_ = true;
  }

 private:
  void take(std::uint32_t generation, const RankMessage& message) {
    std::unique_lock lock(mutex_);
    generation_ = generation;
    if (const auto* ping = std::get_if<RankPing>(&message); ping != nullptr && !keeps_pings_) {
      Leader::Port* port = port_.get();
      lock.unlock();
      if (port != nullptr) {
        port->send(generation, RankPong{ping->number});
      }
      return;
    }
    messages_.push_back(message);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RankMessage> messages_;
  std::uint32_t generation_ = 0;
  bool keeps_pings_ = false;
  std::unique_ptr<Leader::Port> port_;
};

}  // namespace cairn::testing
