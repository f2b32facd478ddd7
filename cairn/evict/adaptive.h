// AdaptivePolicy: evicts the blocks whose return is the least likely for the room they take, by when blocks like them
// returned.
//
// The unit is a segment: a run of consecutive blocks of one sequence with the same last request and the same class
// (return_model.h). A session is a few segments, whatever its length. A request takes over the head of a segment, and
// evictions take blocks from its tail. A segment can give blocks while its last block is a leaf, so leaves always go
// first. The victim is the segment of least worth of 64 that are picked at random, or of all if there are fewer; the one
// used longest ago among equals.
//
// Segments whose blocks were evicted are remembered by the key of their first block, so that their return counts too.
//
// A block is known from its first release until it is forgotten; `segments_of_` says to which segment it belongs, held
// or not. Of one segment, the held blocks are consecutive.
//
// Complexity: O(segments) a call, and a few nanoseconds a block to keep the tree of leaves. Up to 71 bytes a block, and
// the model, which pools may share.
#pragma once

#include <array>
#include <memory>

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/lineage_forest.h"
#include "cairn/evict/return_model.h"
#include "cairn/evict/segment_groups.h"

namespace cairn {

class AdaptivePolicy final : public EvictionPolicy {
 public:
  // Requires: view.parents is set.
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

  void insert(std::span<const BlockId> block_ids) override;
  void remove(std::span<const BlockId> block_ids) override;
  void match(std::span<const BlockId> held, std::span<const BlockId> in_use) override;
  void match_victims(std::span<const BlockId> block_ids) override;
  void end(std::span<const BlockId> block_ids, RequestEnding ending) override;
  [[nodiscard]] BlockPast past_of(BlockId block_id) const override;
  void adopt(std::span<const BlockId> block_ids, std::span<const BlockPast> pasts) override;
  [[nodiscard]] bool is_worth_more(const BlockPast& past, ClassRange classes, const Veto& veto) override;
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) override;
  void forget(std::span<const BlockId> block_ids) override;
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) override;
  [[nodiscard]] bool leaves_first() const override { return true; }
  [[nodiscard]] bool holds_below(BlockId block_id) const override { return forest_.holds_below(block_id); }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] bool contains(BlockId block_id) const override { return forest_.contains(block_id); }
  [[nodiscard]] std::size_t bytes() const override;

 private:
  using SegmentId = SegmentGroups::SegmentId;  // from 1; 0 is none
  static constexpr std::uint32_t kNoPlace = 0xFFFFFFFF;

  // Of a ghost, that is, a segment whose blocks were all forgotten: `tail`, `place` and `held` link it to others.
  struct Segment {
    std::uint64_t stamp;  // when it was used last, in nanoseconds; no two uses have the same
    BlockId tail;         // the last held block; of a ghost, the ghost before it
    std::uint32_t place;  // in groups_, or kNoPlace; of a ghost, the ghost after it
    std::uint32_t held;   // blocks; of a ghost, the next one of the same list
    std::uint32_t out;    // blocks that are in use, or were evicted and not forgotten yet
    std::uint32_t gone;   // blocks behind the others that were forgotten
    std::uint32_t name;   // hash of the key of the first block that was forgotten
    ReturnModel::LogGap gap;
    ReturnModel::Class return_class;
    EvictionClass eviction_class;
    std::uint8_t counted;  // buckets of its age that the model knows it survived
    std::uint8_t uses : 4;
    std::uint8_t is_used : 1;  // since it was released
    std::uint8_t is_ghost : 1;
  };
  static_assert(sizeof(Segment) == 40);

  AdaptivePolicy(const PolicyView& view, LineageForest forest, PageArray<SegmentId> segment_of,
                 PageArray<Segment> segments, SegmentGroups groups, PageArray<SegmentId> ghost_lists,
                 PageArray<std::uint8_t> marks, std::shared_ptr<ReturnModel> model);

  Segment& at(SegmentId id) { return segments_[id - 1]; }
  [[nodiscard]] SegmentId segment_of(BlockId block_id) const { return segment_of_[index_of(block_id)]; }
  void set_segment(BlockId block_id, SegmentId id) { segment_of_[index_of(block_id)] = id; }
  // 64 bits of the key: the lower half names ghosts, all of it marks blocks that were forgotten.
  [[nodiscard]] std::uint64_t hash_of_block(BlockId block_id) const {
    return hash_of(keys_[index_of(block_id)], seed_);
  }
  [[nodiscard]] std::uint8_t& mark_at(std::uint64_t hash) { return marks_[((hash >> 32) * marks_.size()) >> 32]; }
  [[nodiscard]] static std::uint8_t mark_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash | 1); }
  [[nodiscard]] Duration now();
  [[nodiscard]] std::uint64_t next_stamp();

  SegmentId new_segment();
  SegmentId new_segment_like(SegmentId id);
  void free_segment(SegmentId id);
  void free_if_empty(SegmentId id);
  void enter_groups(SegmentId id);
  void leave_groups(SegmentId id);
  void became_leaf(BlockId block_id);

  void take_out(std::span<const BlockId> block_ids, bool is_use);
  void touch_run(std::span<const BlockId> in_use);
  void use(SegmentId id);
  void observe(Segment& segment, std::uint32_t bucket, bool returned);
  [[nodiscard]] std::uint32_t age_of(std::uint64_t stamp) const;
  [[nodiscard]] float worth_of(const Segment& segment) const;
  [[nodiscard]] SegmentId cut(SegmentId id, BlockId first, BlockId last, std::uint32_t count);
  void join_neighbour(SegmentId id, BlockId block_id);

  // Of one run that is released: the segments of its blocks, from the head on.
  void place_run(std::span<const BlockId> leaf_first, bool ends_in_leaf);
  [[nodiscard]] SegmentId find_ghost(BlockId first);
  [[nodiscard]] std::size_t count_marked(std::span<const BlockId> leaf_first);
  [[nodiscard]] SegmentId join_runs(SegmentId upper, SegmentId lower, std::span<const BlockId> leaf_first,
                                    std::size_t begin, std::size_t middle, std::size_t end);

  void become_ghost(SegmentId id);
  void split_ghost(SegmentId id);
  void forget_ghost(SegmentId id);

  [[nodiscard]] SegmentId choose(ClassRange classes, const Veto& veto);
  [[nodiscard]] SegmentId least_worth(std::span<const SegmentId> segments, const Veto& veto);
  void look_at_some();

  const std::uint32_t capacity_;
  const Clock* const clock_;
  const KeySeed seed_;
  Column<BlockKey> keys_;
  Column<EvictionClass> classes_;
  LineageForest forest_;
  PageArray<SegmentId> segment_of_;  // by block
  PageArray<Segment> segments_;
  SegmentGroups groups_;              // segments that can give blocks
  PageArray<SegmentId> ghost_lists_;  // heads of the lists of ghosts, by name
  PageArray<std::uint8_t> marks_;     // of the blocks that were forgotten, by their hashes; newer ones overwrite
  const std::shared_ptr<ReturnModel> model_;
  std::array<ReturnModel::Observation, 256> observed_;  // since the model was told, the first so many:
  std::size_t observed_count_ = 0;
  RequestEnding ending_ = RequestEnding::kUnknown;  // of the run that is inserted next
  std::uint32_t size_ = 0;
  SegmentId free_ = 0;          // linked by `gone`
  std::uint32_t used_end_ = 0;  // segments from here on were never used
  SegmentId oldest_ghost_ = 0;
  SegmentId newest_ghost_ = 0;
  std::uint64_t ghost_blocks_ = 0;
  std::uint32_t look_next_ = 0;
  BlockId newest_ = kNoBlock;  // the last block of the run that was inserted last, until the next request
  std::uint64_t stamp_ = 0;
  std::uint64_t random_;
};

}  // namespace cairn
