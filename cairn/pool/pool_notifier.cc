#include "cairn/pool/pool_notifier.h"

#include <algorithm>
#include <utility>

#include "cairn/base/callback_scope.h"

namespace cairn {

namespace {

constexpr const char* kWhat = "an observer of a pool";

}  // namespace

PoolNotifier::PoolNotifier(CacheLevel tier, std::vector<PoolObserver*> observers, const Mutex& lock)
    : tier_(tier), observers_(std::move(observers)), lock_(lock) {}

void PoolNotifier::reserve(std::size_t blocks) {
  if (is_watched()) {
    removed_.reserve(blocks);
    matched_.reserve(blocks);
    registered_.reserve(blocks);
  }
}

void PoolNotifier::reserve_removed(std::size_t more) {
  if (is_watched() && removed_.size() + more > removed_.capacity()) {
    removed_.reserve(std::max({std::size_t{8}, 2 * removed_.size(), removed_.size() + more}));
  }
}

std::size_t PoolNotifier::bytes() const {
  return (removed_.capacity() + matched_.capacity()) * sizeof(BlockKey) +
         registered_.capacity() * sizeof(ResidentBlock);
}

void PoolNotifier::report_removed() {
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_removed(tier_, removed_);
  }
  removed_.clear();
}

void PoolNotifier::tell_evicted() {
  if (removed_.empty()) {
    return;
  }
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_evicted(tier_, removed_);
  }
  removed_.clear();
}

void PoolNotifier::tell_registered(std::span<const Token> tokens) {
  if (registered_.empty()) {
    return;
  }
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_registered(tier_, registered_, tokens);
  }
  registered_.clear();
}

void PoolNotifier::report_matched(std::span<const BlockKey> keys) {
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_matched(tier_, keys);
  }
}

void PoolNotifier::tell_loaded(std::span<const BlockKey> keys) {
  if (keys.empty() || !is_watched()) {
    return;
  }
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_loaded(tier_, keys);
  }
}

void PoolNotifier::tell_cleared() {
  removed_.clear();
  if (!is_watched()) {
    return;
  }
  const CallbackScope scope(lock_, kWhat);
  for (PoolObserver* observer : observers_) {
    observer->on_cleared(tier_);
  }
}

}  // namespace cairn
