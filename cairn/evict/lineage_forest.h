// LineageForest: which of the evictable blocks are leaves, that is, have no evictable child.
//
// It keeps the tree of evictable blocks by the parents that their keys name. A block that is not evictable itself stays
// in the tree as a ghost while it has evictable descendants. Blocks whose parent is not in the pool are orphans until a
// block with the parent's key becomes evictable and adopts them. If two keys share a position and a parent fragment, a
// block may have one child too many; nothing breaks.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a block amortised (a removal climbs over the ghosts that it frees). 16.5 bytes a block, allocated at
//             creation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/base/check.h"
#include "cairn/base/page_array.h"
#include "cairn/evict/eviction_policy.h"

namespace cairn {

class LineageForest {
 public:
  static constexpr std::uint32_t kMaxBlocks = (1U << 30) - 2;

  [[nodiscard]] static Result<LineageForest> create(const PolicyView& view);

  // The parent of this block, evictable or not, or kNoBlock. Runs are released leaf first, so the next block usually is
  // the parent, and no search is needed. Requires: the view has a ParentFinder.
  [[nodiscard]] BlockId parent_of(BlockId block_id, BlockId likely_parent) const {
    const BlockKey& key = keys_[index_of(block_id)];
    if (key.position() == 0) {
      return kNoBlock;
    }
    if (likely_parent != kNoBlock && keys_[index_of(likely_parent)].is_parent_of(key)) {
      return likely_parent;
    }
    return parents_->find_parent(key);
  }

  struct Inserted {
    bool is_leaf;
    BlockId no_longer_leaf;  // its parent, if that was a leaf; else kNoBlock
  };
  // The block becomes evictable. `parent` is its parent, evictable or not, or kNoBlock.
  Inserted insert(BlockId block_id, BlockId parent) {
    CAIRN_DCHECK(!contains(block_id), "a block becomes evictable once");
    const Link self = index_of(block_id) + 1;
    Node& node = at(self);
    node.child |= kEvictable;
    if (orphans_ > 0) {
      adopt_orphans(self);
    }
    BlockId no_longer_leaf = kNoBlock;
    if ((node.child & kLinked) == 0) {
      if (parent == kNoBlock) {
        link_without_parent(self);
      } else {
        Node& above = nodes_[index_of(parent)];
        no_longer_leaf = (above.child & (kLinkMask | kEvictable)) == kEvictable ? parent : kNoBlock;
        link_below(self, index_of(parent) + 1);
      }
    }
    return {(node.child & kLinkMask) == kNoLink, no_longer_leaf};
  }

  struct Removed {
    bool was_leaf;
    BlockId new_leaf;  // the evictable ancestor that became a leaf, or kNoBlock
  };
  // The block is no longer evictable. Requires: it was.
  Removed remove(BlockId block_id) {
    CAIRN_DCHECK(contains(block_id), "only an evictable block is removed");
    const Link self = index_of(block_id) + 1;
    Node& node = at(self);
    node.child &= ~kEvictable;
    if ((node.child & kLinkMask) != kNoLink) {
      return {false, kNoBlock};  // stays as a ghost
    }
    return {true, prune(self)};
  }

  // The block lost its key; its children become orphans. Returns the new leaf as above. Requires: not evictable.
  BlockId forget(BlockId block_id);

  [[nodiscard]] bool contains(BlockId block_id) const { return (nodes_[index_of(block_id)].child & kEvictable) != 0; }
  // Whether the block, evictable or not, has evictable descendants.
  [[nodiscard]] bool holds_below(BlockId block_id) const {
    return (nodes_[index_of(block_id)].child & kLinkMask) != kNoLink;
  }
  // The block above in the tree, evictable or not; kNoBlock for roots and orphans. Requires: the block is in the tree.
  [[nodiscard]] BlockId above(BlockId block_id) const { return to_block(nodes_[index_of(block_id)].parent); }
  // One of the blocks below in the tree, or kNoBlock.
  [[nodiscard]] BlockId one_below(BlockId block_id) const {
    return to_block(nodes_[index_of(block_id)].child & kLinkMask);
  }
  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + orphan_heads_.bytes(); }
  void prefetch(BlockId block_id) const { __builtin_prefetch(&nodes_[index_of(block_id)], 1); }

 private:
  // A block id plus one, so that a zeroed node is not in the tree.
  using Link = std::uint32_t;
  static constexpr Link kNoLink = 0;
  static constexpr Link kLinkMask = (1U << 30) - 1;
  static constexpr Link kLinked = 1U << 30;     // it is in the list of its parent, a root or an orphan
  static constexpr Link kEvictable = 1U << 31;  // not a ghost

  struct Node {
    Link parent;
    Link next;
    Link prev;
    Link child;  // the first one, with the two flags above it
  };

  LineageForest(const PolicyView& view, PageArray<Node> nodes, PageArray<Link> orphan_heads);

  static BlockId to_block(Link link) { return link == kNoLink ? kNoBlock : BlockId{link - 1}; }
  Node& at(Link link) { return nodes_[link - 1]; }
  Link& orphans_like(const BlockKey& child);
  Link& orphans_of(const BlockKey& parent);
  Link& orphan_head(std::uint32_t parent_position, std::uint64_t fragment);
  void link_below(Link child, Link parent) {
    Node& node = at(child);
    node.child |= kLinked;
    node.parent = parent;
    push_front(at(parent).child, child);
  }
  void link_without_parent(Link child);
  void adopt_orphans(Link parent);
  void detach(Link link);
  // The flags above the link stay in `head`.
  void push_front(Link& head, Link link) {
    Node& node = at(link);
    node.prev = kNoLink;
    node.next = head & kLinkMask;
    if (node.next != kNoLink) {
      at(node.next).prev = link;
    }
    head = (head & ~kLinkMask) | link;
  }
  BlockId prune(Link link);

  Column<BlockKey> keys_;
  const ParentFinder* parents_;
  std::uint64_t multiplier_;  // hashes what names a parent, to find its list of orphans
  PageArray<Node> nodes_;
  PageArray<Link> orphan_heads_;  // hashed by the parent that is missing
  std::uint32_t orphans_ = 0;
};

}  // namespace cairn
