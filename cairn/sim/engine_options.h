// EngineOptions: one simulated worker: its size and limits, whether it is sound (Profile), and how long it computes
// (CostModel).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/retention.h"

namespace cairn::sim {

// Whether the simulation is sound (kStrict), or answers exactly as the system that it is modelled on (kSeed).
enum class Profile : std::uint8_t { kStrict, kSeed };

// "strict", "seed"
[[nodiscard]] constexpr std::string_view to_string(Profile profile) {
  return profile == Profile::kSeed ? "seed" : "strict";
}
[[nodiscard]] constexpr std::optional<Profile> parse_profile(std::string_view name) {
  for (const Profile profile : {Profile::kStrict, Profile::kSeed}) {
    if (name == to_string(profile)) {
      return profile;
    }
  }
  return std::nullopt;
}

// How much of a cache is in use.
struct CacheUse {
  std::uint64_t blocks = 0;
  std::uint64_t capacity = 0;
  std::uint32_t block_size = 0;
};

// How long a simulated engine computes: prefill depends on the tokens to compute, decode on how much of the
// cache is in use.
//
// polynomial() was fitted to one engine on one machine:
//   prefill ms = 4.209989e-7 T^2 + 1.518344e-2 T + 16.50142, 0 for no tokens
//   decode ms  = -25.74 p^2 + 54.01 p + 5.74, at least 1; p is the fraction of the cache in use
// parse() reads measured points as CSV, one a line:
//   prefill,TOKENS,MS    a pass that computes TOKENS tokens
//   decode,TOKENS,MS     one step with TOKENS tokens in the cache
//   prompt,TOKENS,MS     instead of prefill: a prompt of TOKENS tokens, computed alone in one pass, nothing of it cached.
//                        Tokens take longer the more tokens are before them: tokens a to b of a prompt take F(b) - F(a),
//                        and each pass that computes any F(0) besides.
// Points are joined by straight lines, which continue beyond the first and the last point; never below 0. Empty lines,
// lines that begin with # and a first line of titles are skipped. decode, and prefill or prompt, need at least two points. with_speedup()
// is the same engine, `factor` times as fast.
//
// Errors: parse() fails on any other line, on two points at the same TOKENS and on too few points; the message
// names the line. with_speedup() fails unless the factor is above 0.
class CostModel {
 public:
  [[nodiscard]] static CostModel polynomial() { return {}; }
  [[nodiscard]] static Result<CostModel> parse(std::string_view csv);
  [[nodiscard]] Result<CostModel> with_speedup(double factor) const;

  // Rounded to the nearest nanosecond. prefill(tokens) is a pass that computes so many tokens of any prompts.
  [[nodiscard]] Duration prefill(std::uint64_t tokens) const;
  // Whether the time depends on the tokens before those that are computed. Then prefill() takes those too: of each prompt of a
  // pass, the tokens that are cached or were computed before, and those after the pass.
  [[nodiscard]] bool depends_on_context() const { return !prompt_points_.empty(); }
  struct PromptPart {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
  };
  [[nodiscard]] Duration prefill(std::span<const PromptPart> parts) const;
  [[nodiscard]] Duration decode(const CacheUse& use) const;

 private:
  struct Point {
    double tokens;
    double ms;
  };

  CostModel() = default;
  [[nodiscard]] static Status add_line(std::string_view line, CostModel& model);
  [[nodiscard]] static double on_line(const std::vector<Point>& points, double tokens);
  [[nodiscard]] Duration scaled(double ms) const;

  // Sorted by tokens; empty for the polynomial.
  std::vector<Point> prefill_points_;
  std::vector<Point> prompt_points_;  // instead of prefill_points_
  std::vector<Point> decode_points_;
  double speedup_ = 1;
};

// The size and the limits of one simulated worker.
struct EngineOptions {
  std::uint32_t blocks = 16'384;
  std::uint32_t block_size = 64;
  PolicyKind eviction = PolicyKind::kLineageTick;
  bool leaves_first = false;  // evict a block only after all blocks that continue its prefix
  Profile profile = Profile::kStrict;
  std::uint32_t max_num_seqs = 256;              // requests that run at the same time
  std::uint32_t max_num_batched_tokens = 8'192;  // in one pass
  bool chunked_prefill = true;                   // if false, a prompt waits until it fits into one pass
  bool prefix_caching = true;
  CostModel costs = CostModel::polynomial();
};

}  // namespace cairn::sim
