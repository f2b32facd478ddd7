#include "cairn/evict/lineage_forest.h"

#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// One list of orphans for so many blocks: orphans are rare, and orphans of one parent share a list anyway.
constexpr std::uint32_t kBlocksPerOrphanList = 8;

BlockId block_of(std::uint32_t link) { return BlockId{link - 1}; }

}  // namespace

Result<LineageForest> LineageForest::create(const PolicyView& view) {
  if (view.capacity > kMaxBlocks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a pool of ", view.capacity, " blocks is more than the ", kMaxBlocks,
                        " that the lineage policy can order; use several pools"));
  }
  CAIRN_TRY_ASSIGN(PageArray<Node> nodes, PageArray<Node>::create(view.capacity));
  CAIRN_TRY_ASSIGN(PageArray<Link> heads, PageArray<Link>::create(view.capacity / kBlocksPerOrphanList + 1));
  return LineageForest(view, std::move(nodes), std::move(heads));
}

LineageForest::LineageForest(const PolicyView& view, PageArray<Node> nodes, PageArray<Link> orphan_heads)
    : keys_(view.keys),
      parents_(view.parents),
      multiplier_(KeySeed::of_process().second),
      nodes_(std::move(nodes)),
      orphan_heads_(std::move(orphan_heads)) {}

BlockId LineageForest::forget(BlockId block_id) {
  CAIRN_DCHECK(!contains(block_id), "a block is removed before it is forgotten");
  const Link self = index_of(block_id) + 1;
  Node& node = at(self);
  while ((node.child & kLinkMask) != kNoLink) {
    const Link child = node.child & kLinkMask;
    detach(child);
    link_without_parent(child);
  }
  return prune(self);
}

// Takes a childless ghost out of the tree, and every ghost above it that becomes childless by that.
BlockId LineageForest::prune(Link self) {
  while ((at(self).child & kLinked) != 0) {
    Node& node = at(self);
    const Link above = node.parent;
    if (above != kNoLink && node.prev == kNoLink && node.next == kNoLink) {
      // An only child, as in a sequence that is not shared.
      node.child &= ~kLinked;
      node.parent = kNoLink;
      at(above).child &= ~kLinkMask;
    } else {
      detach(self);
      if (above == kNoLink || (at(above).child & kLinkMask) != kNoLink) {
        return kNoBlock;
      }
    }
    if ((at(above).child & kEvictable) != 0) {
      return block_of(above);
    }
    self = above;
  }
  return kNoBlock;
}

// A root, or an orphan.
void LineageForest::link_without_parent(Link child) {
  Node& node = at(child);
  node.child |= kLinked;
  node.parent = node.next = node.prev = kNoLink;
  const BlockKey& key = keys_[child - 1];
  if (key.position() > 0) {
    push_front(orphans_like(key), child);
    ++orphans_;
  }
}

void LineageForest::detach(Link self) {
  Node& node = at(self);
  if (node.next != kNoLink) {
    at(node.next).prev = node.prev;
  }
  const BlockKey& key = keys_[self - 1];
  const bool orphan = node.parent == kNoLink && key.position() > 0;
  if (node.prev != kNoLink) {
    at(node.prev).next = node.next;
  } else if (node.parent != kNoLink) {
    Link& head = at(node.parent).child;
    head = (head & ~kLinkMask) | node.next;
  } else if (orphan) {
    orphans_like(key) = node.next;
  }
  orphans_ -= orphan ? 1 : 0;
  node.child &= ~kLinked;
  node.parent = node.next = node.prev = kNoLink;
}

void LineageForest::adopt_orphans(Link parent) {
  const BlockKey& key = keys_[parent - 1];
  for (Link orphan = orphans_of(key); orphan != kNoLink;) {
    const Link next = at(orphan).next;
    if (key.is_parent_of(keys_[orphan - 1])) {
      detach(orphan);
      link_below(orphan, parent);
    }
    orphan = next;
  }
}

LineageForest::Link& LineageForest::orphans_like(const BlockKey& child) {
  return orphan_head(child.position() - 1, child.parent_fragment());
}

LineageForest::Link& LineageForest::orphans_of(const BlockKey& parent) {
  return orphan_head(parent.position(), parent.fragment_for_child());
}

LineageForest::Link& LineageForest::orphan_head(std::uint32_t parent_position, std::uint64_t fragment) {
  const std::uint64_t name = fragment ^ (std::uint64_t{parent_position} << 40);
  const std::uint64_t mixed = name * multiplier_;
  return orphan_heads_[(mixed >> 32) % orphan_heads_.size()];
}

}  // namespace cairn
