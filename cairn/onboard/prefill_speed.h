// PrefillSpeed: learns how long an engine takes to compute tokens, from the iterations that it ran.
//
// An iteration takes a constant time, time for each token that it decodes and for the context of these, and time for each
// token that it prefills, which grows with the tokens before it (attention). The parts are fitted to the latest iterations
// by least squares of relative errors. Iterations that lie far off (a paused engine, a clock that was read in the wrong
// place) count for little. Iterations are kept by their size and context, so that many short prefills do not displace the
// few long ones; newer ones count more than old ones.
//
// Thread safety: none; PrefillMeter has a lock.
// Complexity: add() is constant. fit() takes some ten microseconds.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/onboard/load_request.h"

namespace cairn {

// The time to compute a token has a constant part and one that grows with its position (attention). For models of 8 to 70
// billion weights they are equal at 30 to 60 thousand tokens. Assumed until long contexts were measured.
inline constexpr double kContextOfTwiceTheTime = 65536;

// How long prefills take.
struct PrefillEstimate {
  double seconds_per_token = 0;                                           // without context
  double seconds_per_context = 0;                                         // of a token, for each token before it
  double seconds_per_iteration = 0;                                       // whatever it prefills; with its decodes
  double tokens_per_iteration = std::numeric_limits<double>::infinity();  // that are prefilled at most
  double seconds_until_next = 0;  // from any time until the iteration in progress ends
  double caution = 1;             // how many times faster loading has to be: what was learned is not exact

  // Tokens per second at this context, iterations not counted.
  [[nodiscard]] double tokens_per_second(double context) const;
  // To prefill tokens first to last - 1 of a sequence.
  [[nodiscard]] double seconds(std::uint64_t first, std::uint64_t last) const;
  [[nodiscard]] static PrefillEstimate constant(double tokens_per_second);
};

class PrefillSpeed {
 public:
  // Iterations that prefill fewer tokens show what an iteration costs, not a token.
  static constexpr std::uint64_t kLeastTokens = 32;
  // So many iterations of at least kLeastTokens make an estimate.
  static constexpr std::uint32_t kLeastIterations = 4;

  void add(const EngineIteration& iteration, TimePoint now);
  // std::nullopt before there are enough iterations.
  [[nodiscard]] std::optional<PrefillEstimate> fit() const;
  // Iterations that prefilled, since the beginning.
  [[nodiscard]] std::uint64_t iterations() const { return prefills_; }

 private:
  struct Sample {
    double prefill_tokens = 0;
    double prefill_context = 0;
    double decode_tokens = 0;
    double decode_context = 0;
    double seconds = 0;
    TimePoint when{};
    bool is_full = false;
  };
  static constexpr std::size_t kSizes = 3;     // of iterations by tokens
  static constexpr std::size_t kContexts = 3;  // of iterations by context
  static constexpr std::size_t kClasses = kSizes * kContexts + 1;
  static constexpr std::size_t kDecodes = kClasses - 1;  // the class of iterations that only decode
  static constexpr std::size_t kKept = 16;               // of each class
  struct Class {
    std::array<Sample, kKept> samples;
    std::uint64_t added = 0;
    [[nodiscard]] std::size_t size() const { return added < kKept ? static_cast<std::size_t>(added) : kKept; }
  };
  struct Fit;

  [[nodiscard]] static std::size_t class_of(const EngineIteration& iteration);

  std::array<Class, kClasses> classes_;
  std::uint64_t prefills_ = 0;
  std::uint64_t decodes_ = 0;
  TimePoint latest_{};
  // Of the latest iterations, the newest counting most: what an iteration decodes beside a prefill, and their durations.
  double decode_tokens_ = 0;
  double decode_context_ = 0;
  double seconds_ = 0;
  double seconds_squared_ = 0;
};

}  // namespace cairn
