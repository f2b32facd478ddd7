#include "cairn/evict/return_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cairn {

namespace {

// All curves are computed anew after so many requests; then the counts fade by this factor.
constexpr std::uint32_t kRoundRequests = 200;
constexpr float kFading = 0.98F;
// Before anything is known: this share of the segments that reach a bucket returns in it, as if so many had been seen.
constexpr float kPriorHazard = 0.05F;
constexpr float kPriorWeight = 10;
// A class counts for as much as its coarser class when it has so many observations.
constexpr float kCoarserWeight = 20;

// Seconds.
float start_of(std::uint32_t bucket) { return bucket == 0 ? 0 : std::exp2(static_cast<float>(bucket - 1) / 4); }

std::uint32_t step_of_new_blocks(std::uint32_t blocks) {
  return blocks == 0 ? 0 : std::min(6U, 1 + (static_cast<std::uint32_t>(std::bit_width(blocks)) - 1) / 2);
}

std::uint32_t step_of_gap(ReturnModel::LogGap gap) {
  return gap == ReturnModel::kNoGap
             ? 0
             : 1 + std::min<std::uint32_t>(7, static_cast<std::uint32_t>(gap) / ReturnModel::kGapSteps);
}

}  // namespace

Result<std::unique_ptr<ReturnModel>> ReturnModel::create() {
  CAIRN_TRY_ASSIGN(PageArray<Counts> counts, PageArray<Counts>::create(kCurves));
  CAIRN_TRY_ASSIGN(PageArray<float> worths, PageArray<float>::create(std::size_t{kCurves} * kBuckets));
  return std::unique_ptr<ReturnModel>(new ReturnModel(std::move(counts), std::move(worths)));
}

ReturnModel::ReturnModel(PageArray<Counts> counts, PageArray<float> worths)
    : counts_(std::move(counts)), worths_(std::move(worths)), learned_(kClasses, CurveId{0}) {
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    curve_of_[level].assign(kNodesOfLevel[level], kNoCurve);
  }
  path_ = {};
  (void)path_of(Class{1});
  compute(0);
}

ReturnModel::Class ReturnModel::class_of(const Traits& traits) {
  std::uint32_t node = traits.uses - 1;
  node = node * kNewBlockSteps + step_of_new_blocks(traits.new_blocks);
  node = node * kGaps + step_of_gap(traits.gap);
  return static_cast<Class>(node);
}

ReturnModel::LogGap ReturnModel::log_gap(Duration gap) {
  const double seconds = static_cast<double>(gap.count()) * 1e-9;
  return seconds <= 1 ? LogGap{0} : static_cast<LogGap>(std::log2(seconds) * kGapSteps);
}

// The curves of the class from coarse to fine.
const ReturnModel::Path& ReturnModel::path_of(Class of) {
  if (of == path_class_ && curves_ > 0) {
    return path_;
  }
  std::array<std::uint32_t, kLevels> nodes{};
  nodes[3] = static_cast<std::uint32_t>(of);
  nodes[2] = nodes[3] / kGaps;
  nodes[1] = nodes[2] / kNewBlockSteps;
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    CurveId& curve = curve_of_[level][nodes[level]];
    if (curve == kNoCurve) {
      curve = static_cast<CurveId>(curves_++);
      counts_[curve].coarser = level == 0 ? kNoCurve : path_[level - 1];
      counts_[curve].level = static_cast<std::uint16_t>(level);
      counts_[curve].node = static_cast<std::uint16_t>(nodes[level]);
      counts_[curve].decayed = round_;
    }
    path_[level] = curve;
  }
  path_class_ = of;
  return path_;
}

void ReturnModel::decay(Counts& counts) const {
  if (counts.decayed == round_) {
    return;
  }
  const float factor = std::pow(kFading, static_cast<float>(round_ - counts.decayed));
  counts.decayed = round_;
  for (float& count : counts.returned) {
    count *= factor;
  }
  for (float& count : counts.survived) {
    count *= factor;
  }
}

void ReturnModel::survived(Class of, std::uint32_t first, std::uint32_t last) {
  if (first >= last) {
    return;
  }
  for (const CurveId curve : path_of(of)) {
    Counts& counts = counts_[curve];
    decay(counts);
    counts.survived[first] += 1;
    counts.survived[last] -= 1;
    counts.is_changed = true;
  }
}

void ReturnModel::returned(Class of, std::uint32_t bucket) {
  for (const CurveId curve : path_of(of)) {
    Counts& counts = counts_[curve];
    decay(counts);
    counts.returned[bucket] += 1;
    counts.is_changed = true;
  }
}

void ReturnModel::learn_some() {
  if (++requests_ >= kRoundRequests && next_ >= curves_) {
    requests_ = 0;
    next_ = 0;
    ++round_;
  }
  for (; next_ < curves_; ++next_) {
    if (counts_[next_].is_changed) {
      compute(static_cast<CurveId>(next_++));
      return;
    }
  }
}

ReturnModel::Curve ReturnModel::hazards(CurveId curve) const {
  Path path{};
  std::size_t depth = 0;
  for (CurveId at = curve; at != kNoCurve; at = counts_[at].coarser) {
    path[depth++] = at;
  }
  Curve hazard;
  hazard.fill(kPriorHazard);
  float weight = kPriorWeight;
  while (depth > 0) {
    const Counts& counts = counts_[path[--depth]];
    Curve survived;
    float sum = 0;
    for (std::uint32_t b = 0; b < kBuckets; ++b) {
      sum += counts.survived[b];
      survived[b] = std::max(0.0F, sum);
    }
    for (std::uint32_t b = 0; b < kBuckets; ++b) {
      const std::uint32_t below = b == 0 ? 0 : b - 1;
      const std::uint32_t above = b + 1 == kBuckets ? b : b + 1;
      const float gone = counts.returned[b] + 0.5F * (counts.returned[below] + counts.returned[above]);
      const float stayed = survived[b] + 0.5F * (survived[below] + survived[above]);
      hazard[b] = (gone + weight * hazard[b]) / (gone + stayed + weight);
    }
    weight = kCoarserWeight;
  }
  return hazard;
}

// The Gittins index of each bucket: from the last one back, a stretch of buckets is extended by the next stretch while
// that has the higher rate of returns.
void ReturnModel::compute(CurveId curve) {
  struct Stretch {
    float returns;   // share that returns in it, of those that reach it
    float time;      // seconds that one of them is kept in it
    float survives;  // share that lives through it
  };
  static const Curve kWidths = [] {
    Curve widths{};
    for (std::uint32_t b = 0; b < kBuckets; ++b) {
      widths[b] = start_of(b + 1) - start_of(b);
    }
    return widths;
  }();
  const Curve hazard = hazards(curve);
  std::array<Stretch, kBuckets> stretches;
  std::size_t count = 0;
  float* const worth = &worths_[std::size_t{curve} * kBuckets];
  for (std::uint32_t b = kBuckets; b-- > 0;) {
    Stretch now{hazard[b], kWidths[b] * (1 - hazard[b] / 2), 1 - hazard[b]};
    while (count > 0 && stretches[count - 1].returns * now.time > now.returns * stretches[count - 1].time) {
      const Stretch& next = stretches[--count];
      now = {now.returns + now.survives * next.returns, now.time + now.survives * next.time,
             now.survives * next.survives};
    }
    stretches[count++] = now;
    worth[b] = now.returns / now.time;
  }
  Counts& counts = counts_[curve];
  counts.is_changed = false;
  // The classes below that have no curve of their own, or a coarser one, use this one.
  const std::uint32_t classes = kClasses / kNodesOfLevel[counts.level];
  for (std::uint32_t i = counts.node * classes; i < (counts.node + 1) * classes; ++i) {
    if (counts_[learned_[i]].level < counts.level) {
      learned_[i] = curve;
    }
  }
}

std::size_t ReturnModel::bytes() const { return counts_.bytes() + worths_.bytes() + kClasses * sizeof(CurveId) * 2; }

}  // namespace cairn
