#include "cairn/evict/return_model.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/hash/hash_bytes.h"

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

// Of what is saved.
static_assert(std::endian::native == std::endian::little, "saved numbers are little-endian");
constexpr std::uint64_t kMagic = 0x4D54524E52494143;  // "CAIRNRTM"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4;
constexpr std::size_t kCurveBytes = 2 + 2 + (2 * ReturnModel::kBuckets + 1) * sizeof(float);
constexpr std::size_t kChecksumBytes = 8;
constexpr float kMostCounts = 1e9F;  // that fading leaves of any traffic, and many times that

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
  return std::unique_ptr<ReturnModel>(new ReturnModel(std::move(counts)));
}

ReturnModel::ReturnModel(PageArray<Counts> counts)
    : worths_(std::size_t{kCurves} * kBuckets), learned_(kClasses), counts_(std::move(counts)) {
  const MutexLock lock(mutex_);
  forget_all();
}

void ReturnModel::forget_all() {
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    curve_of_[level].assign(kNodesOfLevel[level], kNoCurve);
  }
  for (std::atomic<CurveId>& learned : learned_) {
    learned.store(0, std::memory_order_relaxed);
  }
  std::fill_n(counts_.data(), curves_, Counts{});
  curves_ = 0;
  path_.depth = 0;
  round_ = 1;
  requests_ = next_ = 0;
  (void)path_of(Class{0});
  compute(0);
}

ReturnModel::Class ReturnModel::class_of(const Traits& traits) {
  std::uint32_t node = traits.uses - 1;
  node = node * kEndings + static_cast<std::uint32_t>(traits.ending);
  node = node * kNewBlockSteps + step_of_new_blocks(traits.new_blocks);
  node = node * kGaps + step_of_gap(traits.gap);
  return static_cast<Class>(node);
}

ReturnModel::Class ReturnModel::with_ending(Class of, RequestEnding ending) {
  constexpr std::uint32_t kFiner = kNewBlockSteps * kGaps;
  const auto node = static_cast<std::uint32_t>(of);
  const std::uint32_t uses = node / (kFiner * kEndings);
  return static_cast<Class>((uses * kEndings + static_cast<std::uint32_t>(ending)) * kFiner + node % kFiner);
}

ReturnModel::LogGap ReturnModel::log_gap(Duration gap) {
  const double seconds = static_cast<double>(gap.count()) * 1e-9;
  return seconds <= 1 ? LogGap{0} : static_cast<LogGap>(std::log2(seconds) * kGapSteps);
}

const ReturnModel::Path& ReturnModel::path_of(Class of) {
  if (of == path_class_ && path_.depth > 0) {
    return path_;
  }
  std::array<std::uint32_t, kLevels> nodes{};
  nodes[kLevels - 1] = static_cast<std::uint32_t>(of);
  for (std::uint32_t level = kLevels - 1; level > 0; --level) {
    nodes[level - 1] = nodes[level] / kParts[level];
  }
  path_class_ = of;
  path_.depth = 0;
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    if (is_skipped(level, nodes[level])) {
      continue;
    }
    const CurveId curve = curve_at(level, nodes[level], path_.depth == 0 ? kNoCurve : path_.curves[path_.depth - 1]);
    if (curve == kNoCurve) {
      break;
    }
    path_.curves[path_.depth++] = curve;
  }
  return path_;
}

ReturnModel::CurveId ReturnModel::curve_at(std::uint32_t level, std::uint32_t node, CurveId coarser) {
  CurveId& curve = curve_of_[level][node];
  if (curve == kNoCurve && curves_ < kCurves) {
    curve = static_cast<CurveId>(curves_++);
    counts_[curve].coarser = coarser;
    counts_[curve].level = static_cast<std::uint16_t>(level);
    counts_[curve].node = static_cast<std::uint16_t>(node);
    counts_[curve].decayed = round_;
  }
  return curve;
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

void ReturnModel::observe(const Observation& observation) {
  const Path& path = path_of(observation.of);
  for (const CurveId curve : std::span(path.curves).first(path.depth)) {
    Counts& counts = counts_[curve];
    decay(counts);
    if (observation.first < observation.last) {
      counts.survived[observation.first] += 1;
      counts.survived[observation.last] -= 1;
    }
    counts.returned[observation.last] += observation.returned ? 1 : 0;
    counts.is_changed = true;
  }
}

void ReturnModel::learn(std::span<const Observation> observations) {
  const MutexLock lock(mutex_);
  for (const Observation& observation : observations) {
    observe(observation);
  }
  learn_some();
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
  std::array<CurveId, kLevels> path{};
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
  std::atomic<float>* const worth = &worths_[std::size_t{curve} * kBuckets];
  for (std::uint32_t b = kBuckets; b-- > 0;) {
    Stretch now{hazard[b], kWidths[b] * (1 - hazard[b] / 2), 1 - hazard[b]};
    while (count > 0 && stretches[count - 1].returns * now.time > now.returns * stretches[count - 1].time) {
      const Stretch& next = stretches[--count];
      now = {now.returns + now.survives * next.returns, now.time + now.survives * next.time,
             now.survives * next.survives};
    }
    stretches[count++] = now;
    worth[b].store(now.returns / now.time, std::memory_order_relaxed);
  }
  Counts& counts = counts_[curve];
  counts.is_changed = false;
  // The classes below that have no curve of their own, or a coarser one, use this one.
  const std::uint32_t classes = kClasses / kNodesOfLevel[counts.level];
  for (std::uint32_t i = counts.node * classes; i < (counts.node + 1) * classes; ++i) {
    if (counts_[learned_[i].load(std::memory_order_relaxed)].level < counts.level) {
      learned_[i].store(curve, std::memory_order_relaxed);
    }
  }
}

std::size_t ReturnModel::bytes() const {
  std::size_t nodes = 0;
  for (const std::uint32_t count : kNodesOfLevel) {
    nodes += count;
  }
  return kCurves * (sizeof(Counts) + sizeof(Curve)) + (nodes + kClasses) * sizeof(CurveId);
}

// What is saved, all numbers little-endian:
//   8 bytes  "CAIRNRTM"
//   u32      version
//   u32      number of curves
//   curves   u16 level, u16 node, kBuckets floats that returned, kBuckets + 1 floats that survived (differences)
//   u64      XXH3 of all before it
// Curves are saved from coarse to fine, in the order in which they came.

std::vector<std::byte> ReturnModel::encode() const {
  const MutexLock lock(mutex_);
  std::vector<std::byte> bytes;
  bytes.reserve(kHeaderBytes + curves_ * kCurveBytes + kChecksumBytes);
  const auto put = [&bytes](auto value) {
    const auto raw = std::bit_cast<std::array<std::byte, sizeof(value)>>(value);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  put(kMagic);
  put(kVersion);
  put(curves_);
  for (std::uint32_t curve = 0; curve < curves_; ++curve) {
    const Counts& counts = counts_[curve];
    const float faded = std::pow(kFading, static_cast<float>(round_ - counts.decayed));
    put(counts.level);
    put(counts.node);
    for (const float count : counts.returned) {
      put(count * faded);
    }
    for (const float count : counts.survived) {
      put(count * faded);
    }
  }
  put(hash_bytes(bytes, 0));
  return bytes;
}

Status ReturnModel::decode(std::span<const std::byte> bytes) {
  const auto bad = [](std::string_view why) {
    return fail(ErrorCode::kCorrupt, str_cat("not a model of return times: ", why));
  };
  std::size_t at = 0;
  const auto take = [&]<typename T>(T& value) {
    std::array<std::byte, sizeof(T)> raw;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), sizeof(T), raw.begin());
    value = std::bit_cast<T>(raw);
    at += sizeof(T);
  };
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    return bad("too short");
  }
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t curves = 0;
  take(magic);
  take(version);
  take(curves);
  if (magic != kMagic) {
    return bad("it does not begin like one");
  }
  if (version != kVersion) {
    return bad(str_cat("version ", version, ", this program has version ", kVersion));
  }
  if (curves > kCurves || bytes.size() != kHeaderBytes + curves * kCurveBytes + kChecksumBytes) {
    return bad("its length is not that of its curves");
  }
  std::uint64_t checksum = 0;
  at = bytes.size() - kChecksumBytes;
  take(checksum);
  if (checksum != hash_bytes(bytes.first(bytes.size() - kChecksumBytes), 0)) {
    return bad("its checksum is wrong");
  }
  std::vector<Counts> saved(curves);
  at = kHeaderBytes;
  for (std::uint32_t i = 0; i < curves; ++i) {
    Counts& counts = saved[i];
    take(counts.level);
    take(counts.node);
    if (counts.level >= kLevels || counts.node >= kNodesOfLevel[counts.level] ||
        is_skipped(counts.level, counts.node)) {
      return bad(str_cat("curve ", i, " has no such class"));
    }
    float sum = 0;
    for (float& count : counts.returned) {
      take(count);
      sum += count < 0 ? kMostCounts : count;
    }
    for (float& count : counts.survived) {
      take(count);
      sum += std::abs(count);
    }
    if (!(sum < kMostCounts)) {
      return bad(str_cat("curve ", i, " has counts that cannot be"));
    }
  }
  const MutexLock lock(mutex_);
  forget_all();
  for (const Counts& counts : saved) {
    CurveId coarser = kNoCurve;
    if (counts.level > 0) {
      std::uint32_t level = counts.level - 1U;
      std::uint32_t node = counts.node / kParts[counts.level];
      if (is_skipped(level, node)) {
        node /= kParts[level--];
      }
      coarser = curve_of_[level][node];
    }
    // A curve that comes before the coarser one was not saved by us.
    if (counts.level > 0 && coarser == kNoCurve) {
      continue;
    }
    if (const CurveId curve = curve_at(counts.level, counts.node, coarser); curve != kNoCurve) {
      counts_[curve].returned = counts.returned;
      counts_[curve].survived = counts.survived;
    }
  }
  for (std::uint32_t curve = 0; curve < curves_; ++curve) {
    compute(static_cast<CurveId>(curve));
  }
  return {};
}

}  // namespace cairn
