#include "cairn/server/prefixes.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace cairn {

namespace {

struct Node {
  BlockKey key = {};
  std::size_t children = 0;
  std::uint64_t leaves = 0;
  std::uint64_t below = 0;
  std::array<std::uint64_t, kCacheLevels> by_tier = {};
};

struct Place {
  std::uint32_t position = 0;
  std::uint64_t hash = 0;
  friend bool operator==(const Place&, const Place&) = default;
};
struct PlaceHash {
  // The hashes are those of keys, well mixed; the server's clients cannot choose them.
  std::size_t operator()(const Place& place) const { return place.hash ^ (std::uint64_t{place.position} << 40); }
};

}  // namespace

std::vector<SharedPrefix> top_prefixes(std::vector<TierBlock> blocks, std::size_t limit) {
  // The nearest tier first: a block that is in several counts once, there.
  std::ranges::sort(blocks, [](const TierBlock& a, const TierBlock& b) {
    return std::tuple(a.block.key, a.tier) < std::tuple(b.block.key, b.tier);
  });
  const auto again =
      std::ranges::unique(blocks, [](const TierBlock& a, const TierBlock& b) { return a.block.key == b.block.key; });
  blocks.erase(again.begin(), again.end());
  // Children before their parents.
  std::ranges::sort(
      blocks, [](const TierBlock& a, const TierBlock& b) { return a.block.key.position() > b.block.key.position(); });
  std::unordered_map<Place, std::size_t, PlaceHash> places;
  places.reserve(blocks.size());
  std::vector<Node> nodes(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockKey& key = blocks[i].block.key;
    nodes[i].key = key;
    places.emplace(Place{key.position(), value_of(key.sequence_hash())}, i);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Node& node = nodes[i];
    node.leaves = std::max<std::uint64_t>(node.leaves, 1);
    ++node.by_tier[index_of(blocks[i].tier)];
    if (node.key.position() == 0) {
      continue;
    }
    const auto parent = places.find(Place{node.key.position() - 1, value_of(blocks[i].block.parent)});
    if (parent == places.end()) {
      continue;  // it is not cached
    }
    Node& above = nodes[parent->second];
    ++above.children;
    above.leaves += node.leaves;
    above.below += node.below + 1;
    for (std::size_t tier = 0; tier < kCacheLevels; ++tier) {
      above.by_tier[tier] += node.by_tier[tier];
    }
  }
  std::vector<SharedPrefix> shared;
  for (const Node& node : nodes) {
    if (node.children >= 2) {
      shared.push_back({.key = node.key,
                        .blocks = node.key.position() + 1,
                        .sequences = node.leaves,
                        .below = node.below,
                        .by_tier = node.by_tier});
    }
  }
  std::ranges::sort(shared, [](const SharedPrefix& a, const SharedPrefix& b) {
    return std::tuple(b.saved(), a.key) < std::tuple(a.saved(), b.key);
  });
  shared.resize(std::min(shared.size(), limit));
  return shared;
}

}  // namespace cairn
