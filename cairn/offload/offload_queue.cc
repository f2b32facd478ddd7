#include "cairn/offload/offload_queue.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

bool OffloadQueue::Place::operator<(const Place& other) const {
  const auto rank = [](const Place& place) {
    return std::tuple(~place.block.priority, !place.block.is_urgent, ~place.block.frequency, place.block.key.position(),
                      place.number);
  };
  return rank(*this) < rank(other);
}

std::optional<BlockKey> OffloadQueue::push(const Block& block, std::uint64_t number) {
  const auto [place, is_new] = order_.insert({block, number});
  CAIRN_CHECK(is_new && places_.emplace(block.key, place).second, "a block is queued once");
  if (order_.size() <= bound_) {
    return std::nullopt;
  }
  const BlockKey least = std::prev(order_.end())->block.key;
  erase(least);
  return least;
}

template <typename Change>
void OffloadQueue::change(const BlockKey& key, Change change) {
  const auto found = places_.find(key);
  CAIRN_CHECK(found != places_.end(), "only a queued block changes its place");
  auto node = order_.extract(found->second);
  change(node.value().block);
  found->second = order_.insert(std::move(node)).position;
}

void OffloadQueue::raise(const BlockKey& key, std::uint32_t priority) {
  change(key, [priority](Block& block) { block.priority = std::max(block.priority, priority); });
}

void OffloadQueue::make_urgent(const BlockKey& key) {
  change(key, [](Block& block) { block.is_urgent = true; });
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
