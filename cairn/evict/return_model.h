// ReturnModel: after what time blocks of each class return, learned from those that did and those that did not, and
// what that makes a block worth.
//
// A class says how often a segment was used, how many blocks of the request that used it last were new, and how far
// apart its uses are. For each class the model keeps a curve over the age: of the segments that
// reached an age, how many returned then (the hazard). Classes that were seen rarely borrow from coarser ones. The worth
// of a segment is its Gittins index: the most hits for its time in the pool that keeping it can give, over all ages at
// which it could be evicted. Before anything was learned, the hazard is the same for each doubling of the age, and older
// is worth less.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) an observation; learn_some() computes at most one curve.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"

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
  };

  [[nodiscard]] static Result<std::unique_ptr<ReturnModel>> create();

  [[nodiscard]] static Class class_of(const Traits& traits);

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

  // A segment of this class lived through these buckets without a return, `last` not included. Segments count alike,
  // whatever their length: each is one decision.
  void survived(Class of, std::uint32_t first, std::uint32_t last);
  // It returned at an age in this bucket.
  void returned(Class of, std::uint32_t bucket);

  // Hits for each second that a block of this class and age is kept.
  [[nodiscard]] float worth(Class of, std::uint32_t bucket) const {
    return worths_[std::size_t{learned_[static_cast<std::size_t>(of)]} * kBuckets + bucket];
  }

  // One more request was seen: learns a little from what was observed.
  void learn_some();

  [[nodiscard]] std::size_t bytes() const;

 private:
  // Levels from coarse to fine: all; by uses; by new blocks; by gap. A node is a class of some level.
  static constexpr std::uint32_t kNewBlockSteps = 7;
  static constexpr std::uint32_t kGaps = 9;
  static constexpr std::uint32_t kLevels = 4;
  static constexpr std::array<std::uint32_t, kLevels> kNodesOfLevel = {1, kMaxUses, kMaxUses* kNewBlockSteps,
                                                                       kMaxUses* kNewBlockSteps* kGaps};
  static constexpr std::uint32_t kClasses = kNodesOfLevel[kLevels - 1];
  static constexpr std::uint32_t kCurves = kNodesOfLevel[0] + kNodesOfLevel[1] + kNodesOfLevel[2] + kNodesOfLevel[3];
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

  ReturnModel(PageArray<Counts> counts, PageArray<float> worths);

  using Path = std::array<CurveId, kLevels>;
  const Path& path_of(Class of);
  void decay(Counts& counts) const;
  void compute(CurveId curve);
  [[nodiscard]] Curve hazards(CurveId curve) const;

  PageArray<Counts> counts_;                            // by curve
  PageArray<float> worths_;                             // by curve and bucket
  std::array<std::vector<CurveId>, kLevels> curve_of_;  // by node of a level
  std::vector<CurveId> learned_;                        // by class: the finest curve that was computed
  std::uint32_t curves_ = 0;
  Path path_ = {};
  Class path_class_{0};
  std::uint32_t round_ = 1;
  std::uint32_t requests_ = 0;  // of this round
  std::uint32_t next_ = 0;      // the curve to look at next; curves_: all were looked at in this round
};

}  // namespace cairn
