// ReturnModel: after what time blocks of each class return, learned from those that did and those that did not, and
// what that makes a block worth.
//
// A class says how often a segment was used, how the request that used it last ended, how many blocks of that request
// were new, and how far apart its uses are. For each class the model keeps a curve over the age: of the segments that
// reached an age, how many returned then (the hazard). Classes that were seen rarely borrow from coarser ones. The worth
// of a segment is its Gittins index: the most hits for its time in the pool that keeping it can give, over all ages at
// which it could be evicted. Before anything was learned, the hazard is the same for each doubling of the age, and older
// is worth less.
//
// The pools of a manager share one model: a block is asked for as often wherever it lies. What was learned can be saved
// and loaded; the format is that of encode().
//
// Thread safety: any thread may call. worth() takes no lock; a value may be one request old.
// Errors: create(): memory. decode(): not a model, damaged, or of another version; then nothing changes.
// Complexity: O(1) an observation; learn() computes at most one curve. 600 KiB at most.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/request_ending.h"

namespace cairn {

class ReturnModel {
 public:
  static constexpr std::uint32_t kMaxUses = 5;

  // A finest class, from 0.
  enum class Class : std::uint16_t {};
  // The mean of the base-2 logarithm of the seconds between uses, in steps of 1/kGapSteps.
  using LogGap = std::int16_t;
  static constexpr LogGap kNoGap = -1;
  static constexpr LogGap kGapSteps = 256;

  struct Traits {
    std::uint32_t uses = 1;        // kMaxUses: that many or more
    std::uint32_t new_blocks = 0;  // of its last request
    LogGap gap = kNoGap;
    RequestEnding ending = RequestEnding::kUnknown;
  };
  // A segment of this class lived through the buckets from `first` up to, not including, `last`, and then, if `returned`,
  // returned in bucket `last`. Segments count alike, whatever their length: each is one decision.
  struct Observation {
    Class of;
    std::uint8_t first;
    std::uint8_t last;
    bool returned;
  };

  [[nodiscard]] static Result<std::unique_ptr<ReturnModel>> create();

  [[nodiscard]] static Class class_of(const Traits& traits);
  // The same class, but its last request ended like this.
  [[nodiscard]] static Class with_ending(Class of, RequestEnding ending);

  // The ages are divided into buckets: up to a second, then four for each doubling.
  static constexpr std::uint32_t kBuckets = 72;
  [[nodiscard]] static std::uint32_t bucket_of(Duration age) {
    const auto seconds = static_cast<float>(static_cast<double>(age.count()) * 1e-9);
    if (!(seconds >= 1)) {
      return 0;
    }
    const auto bits = std::bit_cast<std::uint32_t>(seconds);
    const std::uint32_t octave = (bits >> 23) - 127;
    const std::uint32_t fraction = bits & 0x7FFFFF;  // of 2^(1/4), 2^(1/2) and 2^(3/4) below
    const std::uint32_t quarter =
        (fraction >= 0x1837F0 ? 1U : 0U) + (fraction >= 0x3504F3 ? 1U : 0U) + (fraction >= 0x5744FD ? 1U : 0U);
    const std::uint32_t bucket = 1 + 4 * octave + quarter;
    return bucket < kBuckets ? bucket : kBuckets - 1;
  }
  [[nodiscard]] static LogGap log_gap(Duration gap);
  // The mean of gaps after one more.
  [[nodiscard]] static LogGap next_gap(LogGap mean, Duration latest) {
    const LogGap gap = log_gap(latest);
    return mean == kNoGap ? gap : static_cast<LogGap>((mean + gap) / 2);
  }

  // Hits for each second that a block of this class and age is kept.
  [[nodiscard]] float worth(Class of, std::uint32_t bucket) const {
    const CurveId curve = learned_[static_cast<std::size_t>(of)].load(std::memory_order_relaxed);
    return worths_[std::size_t{curve} * kBuckets + bucket].load(std::memory_order_relaxed);
  }

  // One more request was seen: learns a little from what was observed.
  void learn(std::span<const Observation> observations) CAIRN_EXCLUDES(mutex_);

  // All that was learned, with a checksum.
  [[nodiscard]] std::vector<std::byte> encode() const CAIRN_EXCLUDES(mutex_);
  // Replaces what was learned.
  [[nodiscard]] Status decode(std::span<const std::byte> bytes) CAIRN_EXCLUDES(mutex_);

  [[nodiscard]] std::size_t bytes() const;

 private:
  // Levels from coarse to fine: all; by uses; by ending; by new blocks; by gap. A node is a class of some level. Where the
  // ending is not known, that level is left out.
  static constexpr std::uint32_t kEndings = std::size(kAllEndings);
  static constexpr std::uint32_t kNewBlockSteps = 7;
  static constexpr std::uint32_t kGaps = 9;
  static constexpr std::uint32_t kLevels = 5;
  static constexpr std::uint32_t kEndingLevel = 2;
  static constexpr std::array<std::uint32_t, kLevels> kParts = {1, kMaxUses, kEndings, kNewBlockSteps, kGaps};
  static constexpr std::array<std::uint32_t, kLevels> kNodesOfLevel = {
      1, kMaxUses, kMaxUses* kEndings, kMaxUses* kEndings* kNewBlockSteps, kMaxUses* kEndings* kNewBlockSteps* kGaps};
  static constexpr std::uint32_t kClasses = kNodesOfLevel[kLevels - 1];
  // A class that comes when there are so many curves uses a coarser one.
  static constexpr std::uint32_t kCurves = 640;
  using CurveId = std::uint16_t;
  static constexpr CurveId kNoCurve = 0xFFFF;
  using Curve = std::array<float, kBuckets>;

  struct Counts {
    std::array<float, kBuckets> returned;
    std::array<float, kBuckets + 1> survived;  // how much more than in the bucket before
    std::uint32_t decayed;                     // the round up to which the counts are decayed
    CurveId coarser;
    std::uint16_t level;
    std::uint16_t node;
    bool is_changed;  // since its curve was computed
  };
  // The curves of a class from coarse to fine.
  struct Path {
    std::array<CurveId, kLevels> curves;
    std::uint32_t depth = 0;
  };

  explicit ReturnModel(PageArray<Counts> counts);

  const Path& path_of(Class of) CAIRN_REQUIRES(mutex_);
  // The curve of a node, made if there is none yet; kNoCurve if none is left. `coarser`: that of the node above it.
  CurveId curve_at(std::uint32_t level, std::uint32_t node, CurveId coarser) CAIRN_REQUIRES(mutex_);
  // Whether the level is left out for this node.
  [[nodiscard]] static bool is_skipped(std::uint32_t level, std::uint32_t node) {
    return level == kEndingLevel && node % kEndings == static_cast<std::uint32_t>(RequestEnding::kUnknown);
  }
  void forget_all() CAIRN_REQUIRES(mutex_);
  void observe(const Observation& observation) CAIRN_REQUIRES(mutex_);
  void learn_some() CAIRN_REQUIRES(mutex_);
  void decay(Counts& counts) const CAIRN_REQUIRES(mutex_);
  void compute(CurveId curve) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Curve hazards(CurveId curve) const CAIRN_REQUIRES(mutex_);

  std::vector<std::atomic<float>> worths_;     // by curve and bucket
  std::vector<std::atomic<CurveId>> learned_;  // by class: the finest curve that was computed

  mutable Mutex mutex_{LockRank::kHealth};
  PageArray<Counts> counts_ CAIRN_GUARDED_BY(mutex_);                            // by curve
  std::array<std::vector<CurveId>, kLevels> curve_of_ CAIRN_GUARDED_BY(mutex_);  // by node of a level
  std::uint32_t curves_ CAIRN_GUARDED_BY(mutex_) = 0;
  Path path_ CAIRN_GUARDED_BY(mutex_);  // of path_class_
  Class path_class_ CAIRN_GUARDED_BY(mutex_){0};
  std::uint32_t round_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint32_t requests_ CAIRN_GUARDED_BY(mutex_) = 0;  // of this round
  // The curve to look at next; curves_: all were looked at in this round.
  std::uint32_t next_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
