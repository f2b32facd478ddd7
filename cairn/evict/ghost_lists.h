// GhostLists: keys of evicted blocks, in a few lists by the time of eviction.
//
// It remembers a fixed number of keys over all lists; a new key beyond that replaces the oldest of the longest list. A
// key is in at most one list. 32 bits stand for a key, so one lookup in billions finds another key.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a call. 20 bytes a key, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class GhostLists {
 public:
  using List = std::uint32_t;

  [[nodiscard]] static Result<GhostLists> create(std::uint32_t capacity, std::uint32_t lists, const KeySeed& seed = {});

  // Moves or adds the key to the young end of the list.
  void push(List list, const BlockKey& key);
  // Removes the key and returns its list; std::nullopt if it was in none.
  std::optional<List> take(const BlockKey& key);
  // Requires: the list is not empty.
  void drop_oldest(List list);

  [[nodiscard]] std::uint32_t size(List list) const { return ends_[list].size; }
  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + buckets_.bytes() + ends_.size() * sizeof(Ends); }

 private:
  // The index of a node plus one; 0: none.
  using Link = std::uint32_t;
  struct Node {
    std::uint32_t print;
    Link older;
    Link younger;  // of a free node: the next free one
    Link chain;    // the next in the bucket; the top two bits say which list the node is in
  };
  struct Ends {
    Link oldest = 0;
    Link youngest = 0;
    std::uint32_t size = 0;
  };
  static constexpr std::uint32_t kMaxGhosts = (1U << 30) - 2;
  static constexpr Link kLinkMask = (1U << 30) - 1;

  GhostLists(PageArray<Node> nodes, PageArray<Link> buckets, std::uint32_t lists, const KeySeed& seed);

  Node& at(Link link) { return nodes_[link - 1]; }
  [[nodiscard]] std::size_t bucket_of(std::uint32_t print) const {
    return (std::uint64_t{print} * buckets_.size()) >> 32;
  }
  void unlink(Link link);
  void unchain(Link link);
  void recycle(Link link);

  KeySeed seed_;
  PageArray<Node> nodes_;
  PageArray<Link> buckets_;
  std::vector<Ends> ends_;
  Link free_ = 0;
  std::uint32_t never_used_ = 0;
};

}  // namespace cairn
