#include "cairn/evict/reuse_model.h"

#include <algorithm>
#include <bit>

namespace cairn {

namespace {

constexpr std::uint32_t kUnitsPerPool = 64;
// Prior: as if so many blocks had been seen before the first, and this share of them had returned, at any age.
constexpr double kSupposed = 200;
constexpr double kSupposedReturns = 0.3;
// Counts are halved after this many turnovers of the pool.
constexpr std::uint64_t kPoolsToFade = 64;

}  // namespace

ReuseModel::ReuseModel(std::uint32_t capacity)
    : unit_(std::max(1U, capacity / kUnitsPerPool)),
      learn_every_(std::max(64U, capacity / 16)),
      fade_every_(kPoolsToFade * std::max(1U, capacity)),
      next_fading_(fade_every_) {}

// Below one unit: 0. Then four buckets of equal width for each doubling.
std::uint32_t ReuseModel::bucket_of(std::uint64_t age) const {
  const std::uint64_t units = 4 * age / unit_;
  if (units < 4) {
    return 0;
  }
  const auto octave = static_cast<std::uint32_t>(std::bit_width(units)) - 3;
  const auto quarter = static_cast<std::uint32_t>(units >> octave) & 3;
  return std::min(kBuckets, 1 + 4 * octave + quarter);
}

double ReuseModel::begin_of(std::uint32_t bucket) const {
  if (bucket == 0) {
    return 0;
  }
  const std::uint32_t octave = (bucket - 1) / 4;
  const std::uint32_t quarter = (bucket - 1) % 4;
  return static_cast<double>(unit_) * static_cast<double>(std::uint64_t{1} << octave) * (1 + 0.25 * quarter);
}

void ReuseModel::returned(std::uint32_t uses, std::uint64_t age) {
  const std::uint32_t bucket = bucket_of(age);
  if (bucket < kBuckets) {
    classes_[uses - 1].returned[bucket] += 1;
  }
}

void ReuseModel::fade(std::uint64_t now) {
  if (now < next_fading_) {
    return;
  }
  next_fading_ = now + fade_every_;
  for (Class& each : classes_) {
    each.began /= 2;
    for (double& count : each.returned) {
      count /= 2;
    }
  }
}

double ReuseModel::chance(std::uint32_t uses, std::uint64_t age, std::uint64_t until) const {
  constexpr double kSupposedHere = kSupposed * kSupposedReturns / kBuckets;
  const Class& of = classes_[uses - 1];
  const std::uint32_t first = bucket_of(age);
  const std::uint32_t end = std::min(kBuckets, bucket_of(until) + 1);
  double waiting = of.began + kSupposed;
  double back = 0;
  for (std::uint32_t i = 0; i < end; ++i) {
    const double returned = of.returned[i] + kSupposedHere;
    if (i < first) {
      waiting -= returned;
    } else {
      back += returned;
    }
  }
  return std::clamp(back / std::max(waiting, 1.0), 0.0, 1.0);
}

void ReuseModel::learn(std::uint64_t now) {
  if (now < next_learning_) {
    return;
  }
  next_learning_ = now + learn_every_;
  fade(now);
  // The share of blocks of any class that return in each bucket.
  double began = kSupposed;
  std::array<double, kBuckets> expected{};
  expected.fill(kSupposed * kSupposedReturns / kBuckets);
  for (const Class& each : classes_) {
    began += each.began;
    for (std::uint32_t i = 0; i < kBuckets; ++i) {
      expected[i] += each.returned[i];
    }
  }
  for (double& part : expected) {
    part /= began;
  }
  for (Class& each : classes_) {
    rate(each, expected);
  }
}

void ReuseModel::rate(Class& of, const std::array<double, kBuckets>& expected) {
  std::array<double, kBuckets> hits{};
  std::array<double, kBuckets> time{};  // that all blocks together spend in the bucket
  double waiting = of.began + kSupposed;
  for (std::uint32_t i = 0; i < kBuckets; ++i) {
    hits[i] = of.returned[i] + kSupposed * expected[i];
    const double left = std::max(0.0, waiting - hits[i]);
    time[i] = (waiting + left) / 2 * (begin_of(i + 1) - begin_of(i));
    waiting = left;
  }
  for (std::uint32_t i = 0; i < kBuckets; ++i) {
    double hits_until = 0;
    double time_until = 0;
    double best = 0;
    for (std::uint32_t j = i; j < kBuckets; ++j) {
      hits_until += hits[j];
      time_until += time[j];
      best = std::max(best, hits_until / std::max(time_until, 1e-9));
    }
    of.worth[i] = best;
  }
}

}  // namespace cairn
