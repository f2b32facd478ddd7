// ShadowCache: the keys that a cache would hold if it had always followed one expert, for a sample of the traffic.
//
// It sees every use of a sampled key, reports hits, and evicts as its expert says. For kArc it remembers evicted keys
// and moves its target when they return.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a use. About 40 bytes for each of its blocks, 60 for kArc, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/block_queue.h"
#include "cairn/evict/experts.h"
#include "cairn/evict/ghost_lists.h"

namespace cairn {

class ShadowCache final : private ParentFinder {
 public:
  // `leaves_first` only if the sample is the whole traffic: in a smaller sample, blocks lack their parents.
  struct Options {
    Expert expert;
    std::uint32_t blocks;
    bool leaves_first;
    KeySeed seed = {};
  };
  [[nodiscard]] static Result<std::unique_ptr<ShadowCache>> create(const Options& options);
  ShadowCache(const ShadowCache&) = delete;
  ShadowCache& operator=(const ShadowCache&) = delete;
  ~ShadowCache() override = default;

  // The key is used for the `uses`th time, at the tick `now`. Returns whether it was a hit.
  bool use(const BlockKey& key, std::uint32_t uses, const ReuseModel& model, std::uint64_t now);
  // The share of the cache that the expert gives to blocks that were used once.
  [[nodiscard]] double once_share() const { return blocks_ == 0 ? 0 : once_target_ / blocks_; }
  [[nodiscard]] std::size_t bytes() const;

 private:
  // A block id plus one; 0: none.
  using Link = std::uint32_t;
  struct Record {
    BlockKey key;
    Link chain;  // the next in its bucket
  };

  explicit ShadowCache(const Options& options)
      : expert_(options.expert), blocks_(options.blocks), multiplier_(KeySeed::of_process().second) {}

  [[nodiscard]] BlockId find_parent(const BlockKey& child) const override;
  [[nodiscard]] std::size_t bucket_of(std::uint32_t position, std::uint64_t fragment) const;
  [[nodiscard]] std::size_t bucket_of(const BlockKey& key) const;
  [[nodiscard]] BlockId find(const BlockKey& key);
  [[nodiscard]] BlockId make_room(const ReuseModel& model, std::uint64_t now);
  void adapt_target(const BlockKey& key);

  Expert expert_;
  std::uint32_t blocks_;
  std::uint64_t multiplier_;  // hashes keys to buckets
  std::uint32_t used_ = 0;
  double once_target_ = 0;
  PageArray<Record> records_;
  PageArray<Link> buckets_;
  EvictionClass only_class_{};  // of all blocks
  std::optional<BlockQueue> queue_;
  std::optional<GhostLists> ghosts_;  // of kArc: those used once, those used again
};

}  // namespace cairn
