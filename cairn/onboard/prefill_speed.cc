#include "cairn/onboard/prefill_speed.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace cairn {

namespace {

constexpr Duration kLongest = std::chrono::minutes(1);  // a longer iteration is none: the engine was stopped
constexpr std::uint64_t kMostTokens = 1 << 24;          // no engine computes more at once, or after more
constexpr double kNewest = 0.1;                         // the weight of the newest iteration in averages
constexpr std::uint64_t kDecodesBetween = 8;            // of iterations that only decode, one of so many is kept
// An iteration that is older than the newest by this long counts half.
constexpr double kHalfLife = 300;
constexpr int kRounds = 6;
constexpr double kCaution = 1.1;
constexpr double kLeastNoise = 0.01;  // relative
// Decides what the iterations do not tell apart, with little weight beside what they tell: time is that of prefilled tokens
// rather than that of the iteration, and that rather than of the tokens that it decodes. For noise of kLeastNoise; grows with
// its square, up to the limit.
constexpr double kRidge[] = {1e-5, 1e-3, 1e-3, 1e-7, 1e-7};  // by Part
constexpr double kMostRidge = 1e-2;

// The parts of an iteration's time.
enum Part : std::uint8_t { kConstant, kDecodeTokens, kDecodeContext, kPrefill, kContext, kParts };
using Parts = std::array<double, kParts>;

double median(std::span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Row {
  Parts parts = {};
  double seconds = 0;
  double age_weight = 1;
  double expected = 0;  // seconds, by the fit so far
};

// Solves the normal equations for the parts that are `used`; the others are 0. False if they have no solution.
bool solve(const std::array<Parts, kParts>& matrix, const Parts& right, const std::array<bool, kParts>& used,
           Parts& solution) {
  std::array<Parts, kParts> m = matrix;
  Parts r = right;
  for (std::size_t i = 0; i < kParts; ++i) {
    if (!used[i]) {
      continue;
    }
    if (!(m[i][i] > 0)) {
      return false;
    }
    for (std::size_t j = i + 1; j < kParts; ++j) {
      if (!used[j]) {
        continue;
      }
      const double factor = m[j][i] / m[i][i];
      for (std::size_t k = i; k < kParts; ++k) {
        m[j][k] -= factor * m[i][k];
      }
      r[j] -= factor * r[i];
    }
  }
  for (std::size_t i = kParts; i-- > 0;) {
    solution[i] = 0;
    if (!used[i]) {
      continue;
    }
    double sum = r[i];
    for (std::size_t k = i + 1; k < kParts; ++k) {
      sum -= used[k] ? m[i][k] * solution[k] : 0;
    }
    solution[i] = sum / m[i][i];
  }
  return true;
}

// What is assumed beside the rows.
struct Prior {
  double noise = 0;   // of the rows, relative
  double growth = 0;  // context = growth * prefill, as a further row
  double growth_weight = 0;
};

// Weighted least squares with parts that are not negative. `rows` are scaled to at most 1 in each part.
bool least_squares(std::span<const Row> rows, std::span<const double> weights, const Prior& prior,
                   std::array<bool, kParts> used, Parts& solution) {
  std::array<Parts, kParts> matrix = {};
  Parts right = {};
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    for (std::size_t i = 0; i < kParts; ++i) {
      const double weighted = weights[n] * row.parts[i];
      right[i] += weighted * row.seconds;
      for (std::size_t k = 0; k < kParts; ++k) {
        matrix[i][k] += weighted * row.parts[k];
      }
    }
  }
  for (std::size_t i = 0; i < kParts; ++i) {
    matrix[i][i] *= 1 + std::min(kRidge[i] * prior.noise * prior.noise / (kLeastNoise * kLeastNoise), kMostRidge);
  }
  matrix[kContext][kContext] += prior.growth_weight;
  matrix[kPrefill][kPrefill] += prior.growth_weight * prior.growth * prior.growth;
  matrix[kPrefill][kContext] -= prior.growth_weight * prior.growth;
  matrix[kContext][kPrefill] -= prior.growth_weight * prior.growth;
  for (;;) {
    if (!solve(matrix, right, used, solution)) {
      return false;
    }
    std::size_t least = kParts;
    for (std::size_t i = 0; i < kParts; ++i) {
      if (solution[i] < 0 && (least == kParts || solution[i] < solution[least])) {
        least = i;
      }
    }
    if (least == kParts) {
      return true;
    }
    used[least] = false;
  }
}

}  // namespace

double PrefillEstimate::tokens_per_second(double context) const {
  return 1 / (seconds_per_token + seconds_per_context * context);
}

double PrefillEstimate::seconds(std::uint64_t first, std::uint64_t last) const {
  if (last <= first) {
    return 0;
  }
  const auto tokens = static_cast<double>(last - first);
  const double context = tokens * (static_cast<double>(first) + (tokens - 1) / 2);
  const double iterations = std::isfinite(tokens_per_iteration) ? std::ceil(tokens / tokens_per_iteration) : 1;
  return tokens * seconds_per_token + context * seconds_per_context + iterations * seconds_per_iteration;
}

PrefillEstimate PrefillEstimate::constant(double tokens_per_second) {
  return {.seconds_per_token = 1 / tokens_per_second,
          .seconds_per_context = 1 / tokens_per_second / kContextOfTwiceTheTime};
}

std::size_t PrefillSpeed::class_of(const EngineIteration& iteration) {
  if (iteration.prefill_tokens < kLeastTokens) {
    return kDecodes;
  }
  const std::uint64_t context = iteration.prefill_context / iteration.prefill_tokens;
  const std::size_t size = iteration.prefill_tokens < 512 ? 0 : iteration.prefill_tokens < 4096 ? 1 : 2;
  const std::size_t length = context < 4096 ? 0 : context < 32768 ? 1 : 2;
  return size * kContexts + length;
}

void PrefillSpeed::add(const EngineIteration& iteration, TimePoint now) {
  const bool is_empty = iteration.prefill_tokens == 0 && iteration.decode_tokens == 0;
  const bool is_nonsense = iteration.prefill_tokens > kMostTokens || iteration.decode_tokens > kMostTokens ||
                           iteration.prefill_context / kMostTokens > iteration.prefill_tokens ||
                           iteration.decode_context / kMostTokens > iteration.decode_tokens;
  if (is_empty || is_nonsense || iteration.duration <= Duration::zero() || iteration.duration > kLongest) {
    return;
  }
  const Sample sample{.prefill_tokens = static_cast<double>(iteration.prefill_tokens),
                      .prefill_context = static_cast<double>(iteration.prefill_context),
                      .decode_tokens = static_cast<double>(iteration.decode_tokens),
                      .decode_context = static_cast<double>(iteration.decode_context),
                      .seconds = std::chrono::duration<double>(iteration.duration).count(),
                      .when = now,
                      .is_full = iteration.is_full};
  // One stall must not make every iteration look long.
  const double limited = seconds_ > 0 ? std::min(sample.seconds, 10 * seconds_squared_ / seconds_) : sample.seconds;
  seconds_ += kNewest * (limited - seconds_);
  seconds_squared_ += kNewest * (limited * limited - seconds_squared_);
  latest_ = std::max(latest_, now);
  const std::size_t which = class_of(iteration);
  if (which == kDecodes) {
    if (iteration.prefill_tokens > 0 || decodes_++ % kDecodesBetween != 0) {
      return;
    }
  } else {
    ++prefills_;
    decode_tokens_ += kNewest * (sample.decode_tokens - decode_tokens_);
    decode_context_ += kNewest * (sample.decode_context - decode_context_);
  }
  Class& kept = classes_[which];
  kept.samples[kept.added++ % kKept] = sample;
}

std::optional<PrefillEstimate> PrefillSpeed::fit() const {
  if (prefills_ < kLeastIterations) {
    return std::nullopt;
  }
  std::array<Row, kClasses * kKept> all;
  std::size_t count = 0;
  Parts largest = {};
  double longest = 0;
  double full_tokens = 0;
  double full_weight = 0;
  for (const Class& kept : classes_) {
    std::array<double, kKept> seconds;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const Sample& sample = kept.samples[i];
      Row& row = all[count++];
      row.parts = {1, sample.decode_tokens, sample.decode_context, sample.prefill_tokens, sample.prefill_context};
      row.seconds = sample.seconds;
      row.age_weight = std::exp2(-std::chrono::duration<double>(latest_ - sample.when).count() / kHalfLife);
      seconds[i] = sample.seconds;
      for (std::size_t part = 0; part < kParts; ++part) {
        largest[part] = std::max(largest[part], row.parts[part]);
      }
      if (sample.is_full) {
        full_tokens += row.age_weight * sample.prefill_tokens;
        full_weight += row.age_weight;
      }
    }
    // The first expectation is what is usual for iterations of this size.
    const double usual = kept.size() > 0 ? median(std::span(seconds).first(kept.size())) : 0;
    longest = std::max(longest, usual);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      all[count - 1 - i].expected = usual;
    }
  }
  const std::span<Row> rows = std::span(all).first(count);
  std::array<bool, kParts> used;
  for (std::size_t part = 0; part < kParts; ++part) {
    used[part] = largest[part] > 0;
    for (Row& row : rows) {
      row.parts[part] /= used[part] ? largest[part] : 1;
    }
  }
  Prior prior{.growth = largest[kContext] / largest[kPrefill] / kContextOfTwiceTheTime};
  Parts solution = {};
  const auto fit = [&]() -> bool {
    std::array<double, kClasses * kKept> weights;
    std::array<double, kClasses * kKept> errors;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t n = 0; n < count; ++n) {
        errors[n] = std::abs(rows[n].seconds / rows[n].expected - 1);
      }
      std::array<double, kClasses * kKept> sorted = errors;
      prior.noise = std::max(1.5 * median(std::span(sorted).first(count)), kLeastNoise);
      for (std::size_t n = 0; n < count; ++n) {
        const double distance = errors[n] / (2 * prior.noise);
        const double trust = 1 / (1 + distance * distance);
        weights[n] = rows[n].age_weight * trust / (rows[n].expected * rows[n].expected);
      }
      // The assumption is good for a factor of two; the noise says what the iterations are good for.
      const double assumed = prior.growth * std::max(solution[kPrefill], 0.1 * longest);
      prior.growth_weight = assumed > 0 ? prior.noise * prior.noise / (assumed * assumed) : 0;
      if (!least_squares(rows, std::span(weights).first(count), prior, used, solution)) {
        return false;
      }
      for (Row& row : rows) {
        double expected = 0;
        for (std::size_t part = 0; part < kParts; ++part) {
          expected += solution[part] * row.parts[part];
        }
        if (!(expected > 0)) {
          return false;
        }
        row.expected = expected;
      }
    }
    return true;
  };
  if (!fit()) {
    return std::nullopt;
  }
  const auto value = [&](Part part) { return used[part] ? solution[part] / largest[part] : 0.0; };
  PrefillEstimate estimate{.caution = kCaution};
  estimate.seconds_per_token = value(kPrefill);
  estimate.seconds_per_context = value(kContext);
  estimate.seconds_per_iteration =
      value(kConstant) + value(kDecodeTokens) * decode_tokens_ + value(kDecodeContext) * decode_context_;
  if (full_weight > 0) {
    estimate.tokens_per_iteration = full_tokens / full_weight;
  }
  estimate.seconds_until_next = seconds_ > 0 ? seconds_squared_ / seconds_ / 2 : 0;
  if (!(estimate.seconds_per_token > 0) || !std::isfinite(estimate.seconds_per_token)) {
    return std::nullopt;
  }
  return estimate;
}

}  // namespace cairn
