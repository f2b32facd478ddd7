// MemoryStore: a BlockStore in memory, with faults. Answers in submit(), or when the test says so.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/cluster/block_store.h"

namespace cairn::testing {

// What several stores share: a server that outlives its clients.
struct MemoryServer {
  Mutex mutex{LockRank::kRankTransfers};
  std::map<std::string, std::vector<std::byte>> values CAIRN_GUARDED_BY(mutex);  // label before body

  // Decides about an item before it is carried out: an outcome other than std::nullopt is its outcome.
  std::function<std::optional<StoreOutcome>(StoreOperation, const StoreItem&)> fault CAIRN_GUARDED_BY(mutex);
  bool is_held CAIRN_GUARDED_BY(mutex) = false;  // requests wait for MemoryStore::answer()

  void set_fault(std::function<std::optional<StoreOutcome>(StoreOperation, const StoreItem&)> decide) {
    const MutexLock lock(mutex);
    fault = std::move(decide);
  }
  // Changes one bit of every value that is long enough.
  std::size_t flip_a_bit(std::size_t at) {
    const MutexLock lock(mutex);
    std::size_t flipped = 0;
    for (auto& [key, value] : values) {
      if (at < value.size()) {
        value[at] ^= std::byte{4};
        ++flipped;
      }
    }
    return flipped;
  }
  void remove_blocks() {
    const MutexLock lock(mutex);
    std::erase_if(values, [](const auto& each) { return each.second.size() > kStoreLabelBytes; });
  }
  void clear() {
    const MutexLock lock(mutex);
    values.clear();
  }
  std::size_t size() {
    const MutexLock lock(mutex);
    return values.size();
  }
};

class MemoryStore final : public BlockStore {
 public:
  MemoryStore(std::shared_ptr<MemoryServer> server, const Clock& clock, std::size_t limit = 4096)
      : server_(std::move(server)), clock_(clock), limit_(limit) {}
  ~MemoryStore() override { close(); }

  [[nodiscard]] Status submit(StoreRequest&& request) override {
    bool is_held = false;
    {
      const MutexLock lock(server_->mutex);
      if (is_closed_) {
        return fail(ErrorCode::kUnavailable, "memory was closed");
      }
      if (held_.size() + request.items.size() > limit_) {
        return fail(ErrorCode::kExhausted, "memory is full of requests; try again");
      }
      is_held = server_->is_held;
      if (is_held) {
        held_.push_back(std::move(request));
      }
    }
    if (!is_held) {
      carry_out(request);
    }
    return {};
  }
  void close() override {
    std::vector<StoreRequest> left;
    {
      const MutexLock lock(server_->mutex);
      is_closed_ = true;
      left.swap(held_);
    }
    for (StoreRequest& request : left) {
      for (std::size_t i = 0; i < request.items.size(); ++i) {
        request.done(i, {.state = StoreState::kUnavailable, .error = "memory was closed"});
      }
    }
  }
  [[nodiscard]] std::string describe() const override { return "memory"; }

  // Answers what is held.
  void answer() {
    std::vector<StoreRequest> taken;
    {
      const MutexLock lock(server_->mutex);
      taken.swap(held_);
    }
    for (StoreRequest& request : taken) {
      carry_out(request);
    }
  }

 private:
  void carry_out(StoreRequest& request) {
    for (std::size_t i = 0; i < request.items.size(); ++i) {
      StoreOutcome outcome = outcome_of(request, request.items[i]);
      request.done(i, std::move(outcome));
    }
  }
  StoreOutcome outcome_of(const StoreRequest& request, const StoreItem& item) {
    if (request.deadline <= clock_.now()) {
      return {.state = StoreState::kExpired, .error = "memory was late"};
    }
    const MutexLock lock(server_->mutex);
    if (server_->fault) {
      if (std::optional<StoreOutcome> decided = server_->fault(request.operation, item)) {
        return *std::move(decided);
      }
    }
    const auto found = server_->values.find(item.key);
    const bool is_there = found != server_->values.end();
    switch (request.operation) {
      case StoreOperation::kContains:
      case StoreOperation::kGet: {
        if (!is_there) {
          return {.state = StoreState::kAbsent};
        }
        const std::vector<std::byte>& value = found->second;
        const bool reads_body = request.operation == StoreOperation::kGet;
        if (value.size() < kStoreLabelBytes || (reads_body && value.size() != kStoreLabelBytes + item.body.size())) {
          return {.state = StoreState::kCorrupt, .error = "memory has a value of another size"};
        }
        StoreOutcome outcome;
        std::copy_n(value.begin(), kStoreLabelBytes, outcome.label.begin());
        if (reads_body) {
          std::copy(value.begin() + kStoreLabelBytes, value.end(), item.body.begin());
        }
        return outcome;
      }
      case StoreOperation::kPut:
      case StoreOperation::kReplace:
        if (!is_there || request.operation == StoreOperation::kReplace) {
          std::vector<std::byte>& value = server_->values[item.key];
          value.assign(item.label.begin(), item.label.end());
          value.insert(value.end(), item.body.begin(), item.body.end());
        }
        return {};
      case StoreOperation::kErase:
        server_->values.erase(item.key);
        return {};
    }
    return {};
  }

  const std::shared_ptr<MemoryServer> server_;
  const Clock& clock_;
  const std::size_t limit_;
  std::vector<StoreRequest> held_;  // guarded by the server's mutex
  bool is_closed_ = false;          // guarded by the server's mutex
};

}  // namespace cairn::testing
