#include "cairn/evict/ghost_lists.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

Result<GhostLists> GhostLists::create(std::uint32_t capacity, std::uint32_t lists, const KeySeed& seed) {
  CAIRN_CHECK(lists > 0 && lists <= 4, "two bits say which list a ghost is in");
  if (capacity > kMaxGhosts) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a pool of ", capacity, " blocks is more than the ", kMaxGhosts,
                                                     " that this policy can order; use several pools"));
  }
  CAIRN_TRY_ASSIGN(PageArray<Node> nodes, PageArray<Node>::create(capacity));
  CAIRN_TRY_ASSIGN(PageArray<Link> buckets, PageArray<Link>::create(capacity));
  return GhostLists(std::move(nodes), std::move(buckets), lists, seed);
}

GhostLists::GhostLists(PageArray<Node> nodes, PageArray<Link> buckets, std::uint32_t lists, const KeySeed& seed)
    : seed_(seed), nodes_(std::move(nodes)), buckets_(std::move(buckets)), ends_(lists) {}

void GhostLists::push(List list, const BlockKey& key) {
  take(key);
  if (nodes_.size() == 0) {
    return;
  }
  if (free_ == 0 && never_used_ == nodes_.size()) {
    drop_oldest(static_cast<List>(std::ranges::max_element(ends_, {}, &Ends::size) - ends_.begin()));
  }
  const Link link = free_ != 0 ? std::exchange(free_, at(free_).younger) : ++never_used_;
  const auto print = static_cast<std::uint32_t>(hash_of(key, seed_) >> 32);
  Ends& ends = ends_[list];
  Link& bucket = buckets_[bucket_of(print)];
  at(link) = {.print = print, .older = ends.youngest, .younger = 0, .chain = bucket | (list << 30)};
  bucket = link;
  (ends.youngest != 0 ? at(ends.youngest).younger : ends.oldest) = link;
  ends.youngest = link;
  ++ends.size;
}

std::optional<GhostLists::List> GhostLists::take(const BlockKey& key) {
  if (nodes_.size() == 0) {
    return std::nullopt;
  }
  const auto print = static_cast<std::uint32_t>(hash_of(key, seed_) >> 32);
  for (Link link = buckets_[bucket_of(print)]; link != 0; link = at(link).chain & kLinkMask) {
    if (at(link).print == print) {
      const List list = at(link).chain >> 30;
      recycle(link);
      return list;
    }
  }
  return std::nullopt;
}

void GhostLists::drop_oldest(List list) {
  CAIRN_DCHECK(ends_[list].size > 0, "an empty list has no oldest ghost");
  recycle(ends_[list].oldest);
}

void GhostLists::recycle(Link link) {
  unchain(link);
  unlink(link);
  at(link).younger = std::exchange(free_, link);
}

void GhostLists::unchain(Link link) {
  Link* place = &buckets_[bucket_of(at(link).print)];
  while ((*place & kLinkMask) != link) {
    place = &at(*place & kLinkMask).chain;
  }
  *place = (*place & ~kLinkMask) | (at(link).chain & kLinkMask);
}

void GhostLists::unlink(Link link) {
  const Node& node = at(link);
  Ends& ends = ends_[node.chain >> 30];
  (node.older != 0 ? at(node.older).younger : ends.oldest) = node.younger;
  (node.younger != 0 ? at(node.younger).older : ends.youngest) = node.older;
  --ends.size;
}

}  // namespace cairn
