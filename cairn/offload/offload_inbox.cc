#include "cairn/offload/offload_inbox.h"

#include <algorithm>
#include <utility>

namespace cairn {

bool OffloadInbox::registered(std::span<const ResidentBlock> blocks) {
  if (!interests_.candidates && !interests_.uses) {
    return false;
  }
  std::uint32_t deepest = 0;
  for (const ResidentBlock& block : blocks) {
    deepest = std::max(deepest, block.key.position());
  }
  const MutexLock lock(mutex_);
  const std::size_t before = contents_.candidates.size();
  for (const ResidentBlock& block : blocks) {
    add_use(block.key);
    if (interests_.candidates) {
      add_candidate(block.key, deepest + 1);
    }
  }
  return is_due(before);
}

bool OffloadInbox::used(std::span<const BlockKey> keys) {
  if (!interests_.uses) {
    return false;
  }
  std::uint32_t deepest = 0;
  for (const BlockKey& key : keys) {
    deepest = std::max(deepest, key.position());
  }
  const MutexLock lock(mutex_);
  const std::size_t before = contents_.candidates.size();
  for (const BlockKey& key : keys) {
    add_use(key);
    if (interests_.used_again) {
      add_candidate(key, deepest + 1);
    }
  }
  return is_due(before);
}

void OffloadInbox::add_candidate(const BlockKey& key, std::uint32_t sequence_blocks) {
  if (is_closed_) {
    return;
  }
  if (contents_.candidates.size() < interests_.bound) {
    contents_.candidates.push_back({key, sequence_blocks});
  } else {
    ++contents_.left_out;
  }
}

void OffloadInbox::add_use(const BlockKey& key) {
  if (interests_.uses && !is_closed_ && contents_.uses.size() < interests_.bound) {
    contents_.uses.push_back(key);
  }
}

bool OffloadInbox::is_due(std::size_t candidates_before) const {
  return (candidates_before == 0 && !contents_.candidates.empty()) || contents_.uses.size() > interests_.bound / 2;
}

void OffloadInbox::take(Contents& contents) {
  contents.candidates.clear();
  contents.uses.clear();
  contents.left_out = 0;
  const MutexLock lock(mutex_);
  std::swap(contents_, contents);
}

bool OffloadInbox::has_candidates() const {
  const MutexLock lock(mutex_);
  return !contents_.candidates.empty();
}

void OffloadInbox::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  contents_ = {};
}

}  // namespace cairn
