// GhostLists: keys of blocks that are gone, in a few lists by the time they went.
//
// Does:     remembers up to a fixed number of keys over all lists; a new one beyond that takes the place of the oldest
//           of the longest list. A key is in one list at most.
// Exact:    but for hashing: 32 bits stand for a key, so that one lookup in billions finds a stranger.
// Owner:    a policy. Threads: none.
// Costs:    O(1). 20 bytes a ghost, taken once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class GhostLists {
 public:
  using List = std::uint32_t;

  [[nodiscard]] static Result<GhostLists> create(std::uint32_t capacity, std::uint32_t lists, const KeySeed& seed = {});

  // To the young end of the list, from wherever it was.
  void push(List list, const BlockKey& key);
  // Out of whichever list it was in, and which; none where it was in none.
  std::optional<List> take(const BlockKey& key);
  // Requires: the list is not empty.
  void drop_oldest(List list);

  [[nodiscard]] std::uint32_t size(List list) const { return ends_[list].size; }
  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + buckets_.bytes() + ends_.size() * sizeof(Ends); }

 private:
  // A node's number plus one; 0 is none.
  using Link = std::uint32_t;
  struct Node {
    std::uint32_t print;
    Link older;
    Link younger;  // or, in the chain of free ones, the next
    Link chain;    // the next in the bucket; its top two bits are those of the list
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
