#include "cairn/sim/prefix_index.h"

#include <algorithm>

namespace cairn::sim {

void PrefixIndex::stored(std::uint32_t worker, const KvStored& event) {
  for (const KvStoredBlock& block : event.blocks) {
    add(worker, value_of(block.hash));
  }
}

void PrefixIndex::removed(std::uint32_t worker, const KvRemoved& event) {
  for (const SequenceHash hash : event.hashes) {
    remove(worker, value_of(hash));
  }
}

void PrefixIndex::add(std::uint32_t worker, std::uint64_t hash) {
  if (const Holders* holders = holders_.find(hash); holders != nullptr) {
    for (std::uint32_t node = holders->first; node != kNone; node = nodes_[node].next) {
      if (nodes_[node].worker == worker) {
        return;
      }
    }
  }
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const std::uint32_t node = unused_.back();
  unused_.pop_back();
  const auto [holders, is_new] = holders_.insert(hash, {node});
  nodes_[node] = {worker, is_new ? kNone : holders->first};
  holders->first = node;
}

void PrefixIndex::remove(std::uint32_t worker, std::uint64_t hash) {
  Holders* holders = holders_.find(hash);
  if (holders == nullptr) {
    return;
  }
  std::uint32_t* link = &holders->first;
  while (*link != kNone && nodes_[*link].worker != worker) {
    link = &nodes_[*link].next;
  }
  if (*link == kNone) {
    return;
  }
  const std::uint32_t node = *link;
  unused_.push_back(node);
  if (holders->first == node && nodes_[node].next == kNone) {
    holders_.erase(hash);  // before the value changes: it must not be vacant yet
  } else {
    *link = nodes_[node].next;
  }
}

std::span<const std::uint32_t> PrefixIndex::depths(std::span<const BlockKey> keys) {
  std::ranges::fill(depths_, 0);
  for (std::uint32_t depth = 0; depth < keys.size(); ++depth) {
    const Holders* holders = holders_.find(value_of(keys[depth].sequence_hash()));
    bool any = false;
    for (std::uint32_t node = holders == nullptr ? kNone : holders->first; node != kNone; node = nodes_[node].next) {
      std::uint32_t& reached = depths_[nodes_[node].worker];
      if (reached == depth) {
        reached = depth + 1;
        any = true;
      }
    }
    if (!any) {
      break;
    }
  }
  return depths_;
}

}  // namespace cairn::sim
