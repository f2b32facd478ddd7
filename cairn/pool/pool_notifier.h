// PoolNotifier: collects what a pool changes and calls its observers, in order and under the pool's lock.
//
// The pool adds keys while it works and tells the observers before its call ends, so that each observer is called once
// for many blocks. Without observers every call does nothing.
//
// Thread safety: none; the lock of the pool guards it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class PoolNotifier {
 public:
  // `lock` is the pool's: an observer that calls the pool is found out by it. The lock outlives the notifier.
  PoolNotifier(CacheLevel tier, std::vector<PoolObserver*> observers, const Mutex& lock);

  [[nodiscard]] bool is_watched() const { return !observers_.empty(); }
  // Allocates memory for so many blocks in one call, or for so many more removed keys, so that adding them cannot fail.
  void reserve(std::size_t blocks);
  void reserve_removed(std::size_t more);
  [[nodiscard]] std::size_t bytes() const;

  void add_removed(const BlockKey& key) {
    if (is_watched()) {
      removed_.push_back(key);
    }
  }
  void add_registered(const ResidentBlock& block) { registered_.push_back(block); }
  void add_matched(const BlockKey& key) {
    if (is_watched()) {
      matched_.push_back(key);
    }
  }
  [[nodiscard]] std::size_t registered_count() const { return registered_.size(); }

  // Each reports what was added and starts anew; none calls an observer if nothing was added.
  void tell_removed() {
    if (!removed_.empty()) {
      report_removed();
    }
  }
  void tell_evicted();
  // `tokens`: the token ids of the blocks, or empty.
  void tell_registered(std::span<const Token> tokens);
  void tell_matched() {
    tell_matched(matched_);
    matched_.clear();
  }
  void tell_matched(std::span<const BlockKey> keys) {
    if (!keys.empty() && is_watched()) {
      report_matched(keys);
    }
  }
  void tell_loaded(std::span<const BlockKey> keys);
  // The pool is empty for lookups. Keys that were added as removed are not reported one by one.
  void tell_cleared();

 private:
  // Apart, so that calls without observers cost a comparison.
  void report_removed();
  void report_matched(std::span<const BlockKey> keys);

  const CacheLevel tier_;
  const std::vector<PoolObserver*> observers_;
  const Mutex& lock_;
  std::vector<BlockKey> removed_;
  std::vector<BlockKey> matched_;
  std::vector<ResidentBlock> registered_;
};

}  // namespace cairn
