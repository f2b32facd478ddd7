#include "cairn/offload/offload_queue.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

bool OffloadQueue::Place::operator<(const Place& other) const {
  const auto rank = [](const Place& place) {
    return std::tuple(~place.block.priority, ~place.block.frequency, place.block.key.position(), place.number);
  };
  return rank(*this) < rank(other);
}

std::optional<BlockKey> OffloadQueue::push(const Block& block) {
  const auto [place, is_new] = order_.insert({block, next_number_++});
  CAIRN_CHECK(is_new && places_.emplace(block.key, place).second, "a block waits once");
  if (order_.size() <= bound_) {
    return std::nullopt;
  }
  const BlockKey least = std::prev(order_.end())->block.key;
  erase(least);
  return least;
}

void OffloadQueue::raise(const BlockKey& key, std::uint32_t priority) {
  const auto found = places_.find(key);
  CAIRN_CHECK(found != places_.end(), "only a block that waits is raised");
  if (found->second->block.priority >= priority) {
    return;
  }
  auto node = order_.extract(found->second);
  node.value().block.priority = priority;
  found->second = order_.insert(std::move(node)).position;
}

bool OffloadQueue::erase(const BlockKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) {
    return false;
  }
  order_.erase(found->second);
  places_.erase(found);
  return true;
}

std::vector<BlockKey> OffloadQueue::first(std::size_t count) const {
  std::vector<BlockKey> keys;
  keys.reserve(std::min(count, order_.size()));
  for (const Place& place : order_) {
    if (keys.size() == count) {
      break;
    }
    keys.push_back(place.block.key);
  }
  return keys;
}

}  // namespace cairn
