#include "cairn/evict/adaptive.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/evict/lookahead.h"

namespace cairn {

namespace {

// Segments to choose a victim from.
constexpr std::size_t kSample = 64;
// Ghosts have so many blocks for each block of the pool, at most.
constexpr std::uint64_t kGhostBlocks = 4;
// Segments beside one for each block of the pool, so that small pools can remember ghosts.
constexpr std::uint32_t kMoreSegments = 4096;
constexpr std::uint32_t kMoreMarks = 16384;
// A run that was forgotten ends where so many blocks in a row have no mark.
constexpr std::size_t kUnmarked = 6;
// A request brings the model up to date on so many segments.
constexpr std::uint32_t kLookedAt = 64;

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> AdaptivePolicy::create(const PolicyView& view) {
  CAIRN_CHECK(view.parents != nullptr, "the adaptive policy needs a ParentFinder");
  const std::uint32_t segments = view.capacity + kMoreSegments;
  CAIRN_TRY_ASSIGN(LineageForest forest, LineageForest::create(view));
  CAIRN_TRY_ASSIGN(PageArray<SegmentId> segment_of, PageArray<SegmentId>::create(view.capacity));
  CAIRN_TRY_ASSIGN(PageArray<Segment> table, PageArray<Segment>::create(segments));
  CAIRN_TRY_ASSIGN(SegmentGroups groups, SegmentGroups::create(std::max(1U, view.capacity), view.class_count));
  CAIRN_TRY_ASSIGN(PageArray<SegmentId> ghost_lists, PageArray<SegmentId>::create(segments / 4));
  CAIRN_TRY_ASSIGN(PageArray<std::uint8_t> marks,
                   PageArray<std::uint8_t>::create(kGhostBlocks * std::size_t{view.capacity} + kMoreMarks));
  std::shared_ptr<ReturnModel> model = view.returns;
  if (model == nullptr) {
    CAIRN_TRY_ASSIGN(model, ReturnModel::create());
  }
  return std::unique_ptr<EvictionPolicy>(new AdaptivePolicy(view, std::move(forest), std::move(segment_of),
                                                            std::move(table), std::move(groups), std::move(ghost_lists),
                                                            std::move(marks), std::move(model)));
}

AdaptivePolicy::AdaptivePolicy(const PolicyView& view, LineageForest forest, PageArray<SegmentId> segment_of,
                               PageArray<Segment> segments, SegmentGroups groups, PageArray<SegmentId> ghost_lists,
                               PageArray<std::uint8_t> marks, std::shared_ptr<ReturnModel> model)
    : capacity_(view.capacity),
      clock_(view.clock),
      seed_(view.seed),
      keys_(view.keys),
      classes_(view.classes),
      forest_(std::move(forest)),
      segment_of_(std::move(segment_of)),
      segments_(std::move(segments)),
      groups_(std::move(groups)),
      ghost_lists_(std::move(ghost_lists)),
      marks_(std::move(marks)),
      model_(std::move(model)),
      random_(view.seed.first | 1) {}

std::size_t AdaptivePolicy::bytes() const {
  return forest_.bytes() + segment_of_.bytes() + segments_.bytes() + groups_.bytes() + ghost_lists_.bytes() +
         marks_.bytes() + model_->bytes();
}

Duration AdaptivePolicy::now() { return clock_ == nullptr ? Duration::zero() : clock_->now(); }

std::uint64_t AdaptivePolicy::next_stamp() {
  stamp_ = std::max(stamp_ + 1, static_cast<std::uint64_t>(now().count()));
  return stamp_;
}

// Segments.

AdaptivePolicy::SegmentId AdaptivePolicy::new_segment() {
  if (free_ == 0 && used_end_ == segments_.size()) {
    CAIRN_CHECK(oldest_ghost_ != 0, "each segment that is not a ghost has a block");
    forget_ghost(oldest_ghost_);
  }
  SegmentId id = free_;
  if (id != 0) {
    free_ = at(id).gone;
  } else {
    id = ++used_end_;
  }
  at(id) = {};
  at(id).place = kNoPlace;
  at(id).gap = ReturnModel::kNoGap;
  at(id).uses = 1;
  return id;
}

// With the same past, and without blocks.
AdaptivePolicy::SegmentId AdaptivePolicy::new_segment_like(SegmentId id) {
  const SegmentId other = new_segment();
  at(other) = at(id);
  at(other).place = kNoPlace;
  at(other).held = at(other).out = at(other).gone = 0;
  return other;
}

void AdaptivePolicy::free_segment(SegmentId id) {
  at(id) = {};
  at(id).gone = free_;
  free_ = id;
}

void AdaptivePolicy::free_if_empty(SegmentId id) {
  const Segment& segment = at(id);
  if (segment.held == 0 && segment.out == 0) {
    if (segment.gone > 0) {
      become_ghost(id);
    } else {
      free_segment(id);
    }
  }
}

void AdaptivePolicy::enter_groups(SegmentId id) {
  groups_.add(id, index_of(at(id).eviction_class), [this](SegmentId s) -> std::uint32_t& { return at(s).place; });
}

void AdaptivePolicy::leave_groups(SegmentId id) {
  if (at(id).place != kNoPlace) {
    groups_.remove(id, index_of(at(id).eviction_class), [this](SegmentId s) -> std::uint32_t& { return at(s).place; });
    at(id).place = kNoPlace;
  }
}

void AdaptivePolicy::became_leaf(BlockId block_id) {
  if (block_id != kNoBlock) {
    CAIRN_DCHECK(at(segment_of(block_id)).tail == block_id, "a leaf is the last block of its segment");
    enter_groups(segment_of(block_id));
  }
}

// Cuts `count` consecutive held blocks out of a segment, and returns the segment that they are now.
AdaptivePolicy::SegmentId AdaptivePolicy::cut(SegmentId id, BlockId first, BlockId last, std::uint32_t count) {
  const BlockId above = forest_.above(first);
  const bool has_upper = above != kNoBlock && forest_.contains(above) && segment_of(above) == id;
  const bool has_lower = at(id).tail != last;
  if (!has_upper && !has_lower && at(id).out == 0) {
    return id;
  }
  const SegmentId part = new_segment_like(id);
  BlockId block_id = last;
  for (std::uint32_t i = 0; i < count; ++i, block_id = forest_.above(block_id)) {
    set_segment(block_id, part);
  }
  at(part).held = count;
  at(part).tail = last;
  at(id).held -= count;
  if (!has_upper && has_lower) {
    return part;
  }
  // What is behind the last block goes with it, or becomes a segment of its own.
  SegmentId lowest = part;
  if (has_lower) {
    lowest = new_segment_like(id);
    at(lowest).tail = at(id).tail;
    for (block_id = at(id).tail; block_id != last; block_id = forest_.above(block_id)) {
      set_segment(block_id, lowest);
      ++at(lowest).held;
    }
    at(id).held -= at(lowest).held;
  }
  at(lowest).gone = std::exchange(at(id).gone, 0);
  if (at(id).place != kNoPlace) {
    groups_.replace(id, lowest, [this](SegmentId s) -> std::uint32_t& { return at(s).place; });
    at(id).place = kNoPlace;
  }
  if (has_upper) {
    at(id).tail = above;
  }
  return part;
}

// Uses.

void AdaptivePolicy::remove(std::span<const BlockId> block_ids) { take_out(block_ids, false); }

void AdaptivePolicy::match(std::span<const BlockId> held, std::span<const BlockId> in_use) {
  newest_ = kNoBlock;
  if (held.empty() && in_use.empty()) {
    return;
  }
  (void)next_stamp();
  take_out(held, true);
  touch_run(in_use);
}

void AdaptivePolicy::match_victims(std::span<const BlockId> block_ids) {
  (void)next_stamp();
  touch_run(block_ids);
}

void AdaptivePolicy::take_out(std::span<const BlockId> block_ids, bool is_use) {
  for (std::size_t begin = 0; begin < block_ids.size();) {
    const BlockId first = block_ids[begin];
    CAIRN_DCHECK(forest_.contains(first), "only an evictable block is removed");
    SegmentId id = segment_of(first);
    std::size_t end = begin + 1;
    while (end < block_ids.size() && segment_of(block_ids[end]) == id &&
           forest_.above(block_ids[end]) == block_ids[end - 1] && forest_.contains(block_ids[end])) {
      ++end;
    }
    const auto count = static_cast<std::uint32_t>(end - begin);
    const BlockId last = block_ids[end - 1];
    id = cut(id, first, last, count);
    leave_groups(id);
    at(id).held = 0;
    at(id).out += count;
    BlockId new_leaf = kNoBlock;
    for_each_prefetched(
        block_ids.subspan(begin, count), [this](BlockId block_id) { forest_.prefetch(block_id); },
        [&](BlockId block_id) { new_leaf = forest_.remove(block_id).new_leaf; });
    became_leaf(new_leaf);
    if (is_use) {
      use(id);
    }
    begin = end;
  }
  size_ -= static_cast<std::uint32_t>(block_ids.size());
}

void AdaptivePolicy::touch_run(std::span<const BlockId> in_use) {
  for (std::size_t begin = 0; begin < in_use.size();) {
    SegmentId id = segment_of(in_use[begin]);
    std::size_t end = begin + 1;
    while (end < in_use.size() && segment_of(in_use[end]) == id) {
      ++end;
    }
    if (id == 0 || at(id).held > 0 || at(id).out > end - begin) {
      const SegmentId part = id == 0 ? new_segment() : new_segment_like(id);
      for (const BlockId block_id : in_use.subspan(begin, end - begin)) {
        if (segment_of(block_id) == id) {
          set_segment(block_id, part);
          ++at(part).out;
        }
      }
      if (id == 0) {  // used again before their first release
        at(part).uses = 2;
        at(part).stamp = stamp_;
        at(part).is_used = 1;
        begin = end;
        continue;
      }
      at(id).out -= at(part).out;
      id = part;
    }
    use(id);
    begin = end;
  }
}

// All blocks of the segment are used now.
void AdaptivePolicy::use(SegmentId id) {
  Segment& segment = at(id);
  if (segment.gone > 0) {
    split_ghost(id);
  }
  const Duration age(static_cast<Duration::rep>(stamp_ - segment.stamp));
  observe(segment, ReturnModel::bucket_of(age), true);
  segment.gap = ReturnModel::next_gap(segment.gap, age);
  segment.uses = static_cast<std::uint8_t>(std::min<std::uint32_t>(segment.uses + 1U, ReturnModel::kMaxUses)) & 15;
  segment.stamp = stamp_;
  segment.counted = 0;
  segment.is_used = 1;
}

// The bucket of the time since then.
std::uint32_t AdaptivePolicy::age_of(std::uint64_t stamp) const {
  return ReturnModel::bucket_of(Duration(static_cast<Duration::rep>(stamp_ - std::min(stamp, stamp_))));
}

// The segment reached this age, and returned or did not.
void AdaptivePolicy::observe(Segment& segment, std::uint32_t bucket, bool returned) {
  if (segment.counted >= bucket && !returned) {
    return;
  }
  if (observed_count_ == observed_.size()) {
    model_->learn(observed_);
    observed_count_ = 0;
  }
  observed_[observed_count_++] = {.of = segment.return_class,
                                  .first = segment.counted,
                                  .last = static_cast<std::uint8_t>(bucket),
                                  .returned = returned};
  segment.counted = static_cast<std::uint8_t>(bucket);
}

// Tells the model how long a few segments have not returned.
void AdaptivePolicy::look_at_some() {
  const std::uint32_t count = std::min(kLookedAt, used_end_);
  for (std::uint32_t i = 0; i < count; ++i) {
    look_next_ = look_next_ >= used_end_ ? 0 : look_next_;
    Segment& segment = segments_[look_next_++];
    if ((segment.is_ghost != 0 || segment.held > 0) && segment.stamp != 0) {
      observe(segment, age_of(segment.stamp), false);
    }
  }
}

// Endings, and blocks that come from other pools.

void AdaptivePolicy::end(std::span<const BlockId> block_ids, RequestEnding ending) {
  ending_ = ending;
  // Of those that it holds, the segments that the request used as a whole.
  for (std::size_t begin = 0; begin < block_ids.size();) {
    const SegmentId id = segment_of(block_ids[begin]);
    std::size_t end = begin + 1;
    while (end < block_ids.size() && segment_of(block_ids[end]) == id) {
      ++end;
    }
    if (id != 0 && at(id).out == 0 && at(id).held <= end - begin) {
      at(id).return_class = ReturnModel::with_ending(at(id).return_class, ending);
    }
    begin = end;
  }
}

BlockPast AdaptivePolicy::past_of(BlockId block_id) const {
  const SegmentId id = segment_of(block_id);
  if (id == 0) {
    return {};
  }
  const Segment& segment = segments_[id - 1];
  return {.last_use = segment.stamp,
          .return_class = static_cast<std::uint16_t>(segment.return_class),
          .gap = segment.gap,
          .uses = segment.uses,
          .is_in_use = segment.is_used != 0};
}

void AdaptivePolicy::adopt(std::span<const BlockId> block_ids, std::span<const BlockPast> pasts) {
  for (std::size_t begin = 0; begin < block_ids.size();) {
    const BlockPast& past = pasts[begin];
    SegmentId id = segment_of(block_ids[begin]);
    std::size_t end = begin + 1;
    while (end < block_ids.size() && segment_of(block_ids[end]) == id && pasts[end] == past) {
      ++end;
    }
    const std::span<const BlockId> run = block_ids.subspan(begin, end - begin);
    begin = end;
    if (past.last_use == 0 || (id != 0 && past.last_use <= at(id).stamp)) {
      continue;
    }
    stamp_ = std::max(stamp_, past.last_use);
    if (id == 0 || at(id).held > 0 || at(id).out > run.size()) {
      SegmentId part = id == 0 ? find_ghost(run.front()) : new_segment_like(id);
      part = part == 0 ? new_segment() : part;
      at(part).gone = 0;
      for (const BlockId block_id : run) {
        set_segment(block_id, part);
      }
      if (id != 0) {
        at(id).out -= static_cast<std::uint32_t>(run.size());
      }
      at(part).out = static_cast<std::uint32_t>(run.size());
      id = part;
    }
    if (at(id).gone > 0) {
      split_ghost(id);
    }
    Segment& segment = at(id);
    if (segment.stamp != 0 && segment.stamp < past.last_use) {
      observe(segment, ReturnModel::bucket_of(Duration(static_cast<Duration::rep>(past.last_use - segment.stamp))),
              true);
    }
    segment.stamp = past.last_use;
    segment.counted = 0;
    segment.is_used = past.is_in_use ? 1 : 0;
    segment.return_class = ReturnModel::Class{past.return_class};
    segment.gap = past.gap;
    segment.uses = past.uses & 15;
  }
}

bool AdaptivePolicy::is_worth_more(const BlockPast& past, ClassRange classes, const Veto& veto) {
  stamp_ = std::max(stamp_, static_cast<std::uint64_t>(now().count()));
  if (past.last_use == 0) {
    return true;
  }
  const SegmentId victim = choose(classes, veto);
  return victim == 0 ||
         model_->worth(ReturnModel::Class{past.return_class}, age_of(past.last_use)) > worth_of(at(victim));
}

float AdaptivePolicy::worth_of(const Segment& segment) const {
  return model_->worth(segment.return_class, age_of(segment.stamp));
}

// Releases.

void AdaptivePolicy::insert(std::span<const BlockId> block_ids) {
  (void)next_stamp();
  std::size_t begin = 0;
  std::size_t next = 0;
  bool ends_in_leaf = false;
  for_each_prefetched(
      block_ids,
      [this](BlockId block_id) {
        forest_.prefetch(block_id);
        __builtin_prefetch(&segment_of_[index_of(block_id)], 1);
      },
      [&](BlockId block_id) {
        const std::size_t i = next++;
        const BlockId following = next < block_ids.size() ? block_ids[next] : kNoBlock;
        const BlockId parent = forest_.parent_of(block_id, following);
        const auto [is_leaf, no_longer_leaf] = forest_.insert(block_id, parent);
        if (no_longer_leaf != kNoBlock) {
          leave_groups(segment_of(no_longer_leaf));
        }
        if (i == begin) {
          ends_in_leaf = is_leaf;
        }
        if (parent == kNoBlock || parent != following) {
          place_run(block_ids.subspan(begin, next - begin), ends_in_leaf);
          begin = next;
        }
      });
  size_ += static_cast<std::uint32_t>(block_ids.size());
  ending_ = RequestEnding::kUnknown;
  look_at_some();
  model_->learn({observed_.data(), observed_count_});
  observed_count_ = 0;
}

void AdaptivePolicy::place_run(std::span<const BlockId> leaf_first, bool ends_in_leaf) {
  ++stamp_;
  // From the head on; `end` blocks are left.
  SegmentId upper = 0;          // the segment of the blocks before
  std::size_t upper_begin = 0;  // it has the blocks up to here, counted from the leaf,
  std::size_t upper_end = 0;    // from here
  std::uint32_t new_blocks = 0;
  bool is_new = false;
  // New blocks are those that no segment knows. Their number is part of the class of all segments of the run.
  std::size_t end = leaf_first.size();
  // First: which blocks are new. Ghosts take theirs.
  while (end > 0 && segment_of(leaf_first[end - 1]) != 0) {
    --end;
  }
  ReturnModel::LogGap gap = ReturnModel::kNoGap;
  {
    const BlockId above = end < leaf_first.size() ? leaf_first[end] : forest_.above(leaf_first.back());
    if (above != kNoBlock && segment_of(above) != 0) {
      gap = at(segment_of(above)).gap;
    }
  }
  while (end > 0) {
    if (segment_of(leaf_first[end - 1]) != 0) {  // known blocks behind new ones
      gap = at(segment_of(leaf_first[end - 1])).gap;
      is_new = false;
      --end;
      continue;
    }
    std::size_t begin = end;
    SegmentId id = is_new ? 0 : find_ghost(leaf_first[end - 1]);
    if (id != 0) {
      const std::size_t most = std::min<std::size_t>(end, std::exchange(at(id).gone, 0));
      const std::size_t count = count_marked(leaf_first.subspan(end - most, most));
      for (; begin > end - count && segment_of(leaf_first[begin - 1]) == 0; --begin) {
        set_segment(leaf_first[begin - 1], id);
      }
      at(id).out = static_cast<std::uint32_t>(end - begin);
      use(id);
      gap = at(id).gap;
    } else {
      is_new = true;
      id = new_segment();
      at(id).gap = gap;
      at(id).is_used = 1;
      for (; begin > 0 && segment_of(leaf_first[begin - 1]) == 0; --begin) {
        set_segment(leaf_first[begin - 1], id);
      }
      new_blocks += static_cast<std::uint32_t>(end - begin);
    }
    at(id).out = static_cast<std::uint32_t>(end - begin);
    end = begin;
  }
  // Then: the segments, and which of them are one.
  for (end = leaf_first.size(); end > 0;) {
    SegmentId id = segment_of(leaf_first[end - 1]);
    const EvictionClass eviction_class = classes_[index_of(leaf_first[end - 1])];
    std::size_t begin = end - 1;
    while (begin > 0 && segment_of(leaf_first[begin - 1]) == id &&
           classes_[index_of(leaf_first[begin - 1])] == eviction_class) {
      --begin;
    }
    const auto count = static_cast<std::uint32_t>(end - begin);
    if (at(id).held > 0 || at(id).out > count) {
      const SegmentId part = new_segment_like(id);
      for (std::size_t i = begin; i < end; ++i) {
        set_segment(leaf_first[i], part);
      }
      at(id).out -= count;
      id = part;
    }
    Segment& segment = at(id);
    segment.out = 0;
    segment.held = count;
    segment.tail = leaf_first[begin];
    segment.eviction_class = eviction_class;
    if (segment.is_used != 0) {
      segment.is_used = 0;
      segment.counted = 0;
      segment.stamp = stamp_;
      segment.return_class = ReturnModel::class_of(
          {.uses = segment.uses, .new_blocks = new_blocks, .gap = segment.gap, .ending = ending_});
    }
    if (upper != 0 && at(upper).return_class == segment.return_class && at(upper).stamp == segment.stamp &&
        at(upper).eviction_class == eviction_class && at(upper).gone == 0) {
      upper = join_runs(upper, id, leaf_first, begin, upper_begin, upper_end);
    } else {
      upper = id;
      upper_end = end;
    }
    upper_begin = begin;
    end = begin;
  }
  if (ends_in_leaf) {
    enter_groups(upper);
    newest_ = leaf_first.front();
  }
}

// Joins two segments of a run, [middle, end) and [begin, middle) counted from the leaf, and returns the one they are.
AdaptivePolicy::SegmentId AdaptivePolicy::join_runs(SegmentId upper, SegmentId lower,
                                                    std::span<const BlockId> leaf_first, std::size_t begin,
                                                    std::size_t middle, std::size_t end) {
  const bool keeps_upper = at(upper).held >= at(lower).held;
  const SegmentId kept = keeps_upper ? upper : lower;
  const SegmentId other = keeps_upper ? lower : upper;
  for (std::size_t i = keeps_upper ? begin : middle; i < (keeps_upper ? middle : end); ++i) {
    set_segment(leaf_first[i], kept);
  }
  at(kept).held += at(other).held;
  at(kept).tail = leaf_first[begin];
  at(kept).gone = at(lower).gone;
  free_segment(other);
  return kept;
}

// Eviction.

std::size_t AdaptivePolicy::evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  std::size_t evicted = 0;
  const std::uint64_t time = std::max(stamp_, static_cast<std::uint64_t>(now().count()));
  stamp_ = time;
  while (evicted < out.size()) {
    const SegmentId id = choose(classes, veto);
    if (id == 0) {
      break;
    }
    Segment& segment = at(id);
    BlockId new_leaf = kNoBlock;
    do {
      const BlockId victim = segment.tail;
      segment.tail = forest_.above(victim);
      new_leaf = forest_.remove(victim).new_leaf;
      --segment.held;
      ++segment.out;
      out[evicted++] = victim;
    } while (segment.held > 0 && new_leaf == segment.tail && evicted < out.size() && !(veto && veto(segment.tail)));
    if (segment.held == 0 || new_leaf != segment.tail) {
      leave_groups(id);
      became_leaf(new_leaf);
    }
  }
  size_ -= static_cast<std::uint32_t>(evicted);
  return evicted;
}

// The segment that gives the next victim, or 0.
AdaptivePolicy::SegmentId AdaptivePolicy::choose(ClassRange classes, const Veto& veto) {
  for (std::uint32_t c = groups_.next_class(classes.first, classes.last); c < classes.last;
       c = groups_.next_class(c + 1, classes.last)) {
    const std::span<const SegmentId> all = groups_.of_class(c);
    SegmentId least = 0;
    if (all.size() > kSample) {
      std::array<SegmentId, kSample> sample;
      for (SegmentId& id : sample) {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        id = all[static_cast<std::size_t>(((random_ >> 32) * all.size()) >> 32)];
        __builtin_prefetch(&at(id));
      }
      // What was just released is always looked at: it is dropped at once if it is worth least.
      if (newest_ != kNoBlock && forest_.contains(newest_) && index_of(classes_[index_of(newest_)]) == c &&
          at(segment_of(newest_)).place != kNoPlace) {
        sample[0] = segment_of(newest_);
      }
      least = least_worth(sample, veto);
    }
    if (least == 0) {
      least = least_worth(all, veto);
    }
    if (least != 0) {
      return least;
    }
  }
  return 0;
}

AdaptivePolicy::SegmentId AdaptivePolicy::least_worth(std::span<const SegmentId> segments, const Veto& veto) {
  SegmentId least = 0;
  float least_worth = 0;
  for (const SegmentId id : segments) {
    const Segment& segment = at(id);
    const float worth = worth_of(segment);
    if ((least == 0 || worth < least_worth || (worth == least_worth && segment.stamp < at(least).stamp)) &&
        !(veto && veto(segment.tail))) {
      least = id;
      least_worth = worth;
    }
  }
  return least;
}

// Blocks that lost their keys, and ghosts.

void AdaptivePolicy::forget(std::span<const BlockId> block_ids) {
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    const BlockId block_id = block_ids[i];
    became_leaf(forest_.forget(block_id));
    const SegmentId id = std::exchange(segment_of_[index_of(block_id)], 0);
    if (id == 0) {
      continue;
    }
    Segment& segment = at(id);
    --segment.out;
    ++segment.gone;
    const std::uint64_t hash = hash_of_block(block_id);
    mark_at(hash) = mark_of(hash);
    if (i + 1 == block_ids.size() || segment_of(block_ids[i + 1]) != id) {
      segment.name = static_cast<std::uint32_t>(hash);
      free_if_empty(id);
    }
  }
}

void AdaptivePolicy::become_ghost(SegmentId id) {
  Segment& ghost = at(id);
  ghost.is_ghost = 1;
  ghost.is_used = 0;
  SegmentId& list = ghost_lists_[ghost.name % ghost_lists_.size()];
  ghost.held = std::exchange(list, id);
  ghost.tail = BlockId{newest_ghost_};
  ghost.place = 0;
  (newest_ghost_ == 0 ? oldest_ghost_ : at(newest_ghost_).place) = id;
  newest_ghost_ = id;
  ghost_blocks_ += ghost.gone;
  while (ghost_blocks_ > kGhostBlocks * capacity_) {
    forget_ghost(oldest_ghost_);
  }
}

// The forgotten blocks of a segment that is used again keep its past, without it.
void AdaptivePolicy::split_ghost(SegmentId id) {
  const SegmentId ghost = new_segment_like(id);
  at(ghost).gone = std::exchange(at(id).gone, 0);
  become_ghost(ghost);
}

// Takes a ghost out of all lists and frees it.
void AdaptivePolicy::forget_ghost(SegmentId id) {
  const Segment ghost = at(id);
  SegmentId* link = &ghost_lists_[ghost.name % ghost_lists_.size()];
  while (*link != id) {
    link = &at(*link).held;
  }
  *link = ghost.held;
  const SegmentId before = index_of(ghost.tail);
  (before == 0 ? oldest_ghost_ : at(before).place) = ghost.place;
  if (ghost.place == 0) {
    newest_ghost_ = before;
  } else {
    at(ghost.place).tail = BlockId{before};
  }
  ghost_blocks_ -= ghost.gone;
  free_segment(id);
}

// The ghost that begins with this block, as a segment of its own past and no blocks; 0 if there is none.
AdaptivePolicy::SegmentId AdaptivePolicy::find_ghost(BlockId first) {
  const auto name = static_cast<std::uint32_t>(hash_of_block(first));
  SegmentId id = ghost_lists_[name % ghost_lists_.size()];
  while (id != 0 && at(id).name != name) {
    id = at(id).held;
  }
  if (id == 0) {
    return 0;
  }
  const Segment found = at(id);
  forget_ghost(id);
  const SegmentId again = new_segment();
  at(again) = found;
  at(again).is_ghost = 0;
  at(again).place = kNoPlace;
  at(again).held = at(again).out = 0;
  return again;
}

// How many blocks from the head on, at least one, were forgotten with it: the run may go another way than it did.
std::size_t AdaptivePolicy::count_marked(std::span<const BlockId> leaf_first) {
  std::size_t count = 1;
  for (std::size_t i = 1; i < leaf_first.size() && i < count + kUnmarked; ++i) {
    const std::uint64_t hash = hash_of_block(leaf_first[leaf_first.size() - 1 - i]);
    count = mark_at(hash) == mark_of(hash) ? i + 1 : count;
  }
  return count;
}

// Classes.

void AdaptivePolicy::reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) {
  const SegmentId id = cut(segment_of(block_id), block_id, block_id, 1);
  const bool is_leaf = at(id).place != kNoPlace;
  leave_groups(id);
  of_block = to;
  at(id).eviction_class = to;
  if (is_leaf) {
    enter_groups(id);
  }
  join_neighbour(id, block_id);
}

// Joins a segment of one block with the one behind or before it if they have the same past and class.
void AdaptivePolicy::join_neighbour(SegmentId id, BlockId block_id) {
  const auto is_like = [this](SegmentId a, SegmentId b) {
    return at(a).stamp == at(b).stamp && at(a).return_class == at(b).return_class &&
           at(a).eviction_class == at(b).eviction_class;
  };
  if (at(id).gone > 0 && forest_.one_below(block_id) != kNoBlock) {
    return;
  }
  if (const BlockId below = forest_.one_below(block_id); below != kNoBlock && forest_.contains(below)) {
    const SegmentId lower = segment_of(below);
    if (is_like(id, lower)) {
      ++at(lower).held;
      set_segment(block_id, lower);
      free_segment(id);
    }
    return;
  }
  if (const BlockId above = forest_.above(block_id); above != kNoBlock && forest_.contains(above)) {
    const SegmentId upper = segment_of(above);
    if (at(upper).tail == above && at(upper).gone == 0 && is_like(id, upper)) {
      ++at(upper).held;
      at(upper).tail = block_id;
      at(upper).gone = at(id).gone;
      set_segment(block_id, upper);
      if (at(id).place != kNoPlace) {
        groups_.replace(id, upper, [this](SegmentId s) -> std::uint32_t& { return at(s).place; });
      }
      free_segment(id);
    }
  }
}

}  // namespace cairn
