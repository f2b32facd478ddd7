// Engines that behave as engines do, and what is learned from them.
#include "cairn/onboard/prefill_speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>

namespace cairn {
namespace {

// The true times of an engine.
struct Engine {
  double constant = 8e-3;
  double prefill = 25e-6;        // 40,000 tokens a second
  double context = 25e-6 / 5e4;  // twice the time at 50,000 tokens
  double decode = 20e-6;
  double decode_context = 40e-9;

  [[nodiscard]] Duration time(const EngineIteration& iteration, double factor = 1) const {
    const double seconds = constant + prefill * static_cast<double>(iteration.prefill_tokens) +
                           context * static_cast<double>(iteration.prefill_context) +
                           decode * static_cast<double>(iteration.decode_tokens) +
                           decode_context * static_cast<double>(iteration.decode_context);
    return Duration(std::llround(seconds * factor * 1e9));
  }
};

// Runs an engine and lets a PrefillSpeed watch.
class Watched {
 public:
  explicit Watched(std::uint64_t seed = 1) : random_(seed) {}

  Engine engine;
  PrefillSpeed speed;
  std::uint64_t decoding = 0;          // requests that decode beside
  std::uint64_t decode_length = 1000;  // tokens before each
  std::uint64_t drafts = 0;            // of each
  std::function<double()> noise = [] { return 1.0; };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  double gauss(double width) { return std::normal_distribution<double>(0, width)(random_); }
  double lot() { return std::uniform_real_distribution<double>()(random_); }

  void iterate(EngineIteration iteration) {
    for (std::uint64_t i = 0; i < decoding; ++i) {
      iteration.add_decode(decode_length, 1 + drafts);
    }
    iteration.duration = engine.time(iteration, noise());
    now_ += iteration.duration;
    speed.add(iteration, now_);
  }
  // A prompt, in chunks if there is a limit.
  void prompt(std::uint64_t tokens, std::uint64_t first = 0, std::uint64_t limit = 0) {
    while (tokens > 0) {
      const std::uint64_t chunk = limit == 0 ? tokens : std::min(tokens, limit);
      EngineIteration iteration;
      iteration.add_prefill(first, chunk);
      iteration.is_full = chunk < tokens;
      iterate(iteration);
      first += chunk;
      tokens -= chunk;
    }
  }
  void decode(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      EngineIteration iteration;
      iteration.add_decode(500, 1);
      iterate(iteration);
    }
  }
  void pass(Duration time) { now_ += time; }

  // What prefilling takes according to the engine, with its chunks.
  [[nodiscard]] double truth(std::uint64_t first, std::uint64_t last, std::uint64_t limit = 0) const {
    double seconds = 0;
    while (first < last) {
      const std::uint64_t chunk = limit == 0 ? last - first : std::min(last - first, limit);
      EngineIteration iteration;
      iteration.add_prefill(first, chunk);
      for (std::uint64_t i = 0; i < decoding; ++i) {
        iteration.add_decode(decode_length, 1 + drafts);
      }
      seconds += std::chrono::duration<double>(engine.time(iteration)).count();
      first += chunk;
    }
    return seconds;
  }
  // The error of the estimate, relative to the truth.
  [[nodiscard]] double error(std::uint64_t first, std::uint64_t last, std::uint64_t limit = 0) const {
    const std::optional<PrefillEstimate> estimate = speed.fit();
    return estimate ? estimate->seconds(first, last) / truth(first, last, limit) - 1 : -1;
  }

 private:
  std::mt19937_64 random_;
  TimePoint now_{};
};

TEST(PrefillSpeedTest, KnowsNothingBeforeAFewPrefills) {
  Watched watched;
  EXPECT_FALSE(watched.speed.fit().has_value());
  watched.decode(100);
  for (int i = 0; i < 3; ++i) {
    watched.prompt(1000);
  }
  EXPECT_FALSE(watched.speed.fit().has_value());
  watched.prompt(1000);
  ASSERT_TRUE(watched.speed.fit().has_value());
  EXPECT_NEAR(watched.error(0, 1000), 0, 0.02);
  EXPECT_EQ(watched.speed.iterations(), 4U);
}

TEST(PrefillSpeedTest, TellsTokensContextAndIterationsApart) {
  Watched watched;
  for (int i = 0; i < 60; ++i) {
    watched.prompt(100 + watched.below(8000), watched.below(4) * 20000);
    watched.decode(5);
  }
  const PrefillEstimate estimate = *watched.speed.fit();
  EXPECT_NEAR(estimate.seconds_per_token, watched.engine.prefill, 0.02 * watched.engine.prefill);
  EXPECT_NEAR(estimate.seconds_per_context, watched.engine.context, 0.05 * watched.engine.context);
  EXPECT_NEAR(estimate.seconds_per_iteration, watched.engine.constant, 0.05 * watched.engine.constant);
  EXPECT_NEAR(estimate.tokens_per_second(50000), 20000, 600);
  EXPECT_NEAR(watched.error(0, 8000), 0, 0.01);
  EXPECT_NEAR(watched.error(0, 100000), 0, 0.05);
}

TEST(PrefillSpeedTest, AssumesThatContextCostsUntilItIsSeen) {
  Watched watched;
  watched.engine.context = watched.engine.prefill / kContextOfTwiceTheTime;
  watched.noise = [&] { return std::exp(watched.gauss(0.05)); };
  for (int i = 0; i < 40; ++i) {
    watched.prompt(200 + watched.below(2000));
  }
  EXPECT_NEAR(watched.error(0, 2000), 0, 0.05);
  EXPECT_NEAR(watched.error(30000, 40000), 0, 0.35);
}

TEST(PrefillSpeedTest, AModelWithoutAttentionHasNoGrowth) {
  Watched watched;
  watched.engine.context = 0;
  for (int i = 0; i < 60; ++i) {
    watched.prompt(1000 + watched.below(3000), watched.below(10) * 10000);
  }
  EXPECT_NEAR(watched.error(90000, 100000), 0, 0.03);
}

TEST(PrefillSpeedTest, NoiseAveragesOut) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Watched watched(seed);
    watched.noise = [&] { return std::exp(watched.gauss(0.15)); };
    for (int i = 0; i < 200; ++i) {
      watched.prompt(500 + watched.below(8000));
      watched.decode(10);
    }
    EXPECT_NEAR(watched.error(0, 4000), 0, 0.12) << seed;
    EXPECT_NEAR(watched.error(0, 8000), 0, 0.12) << seed;
  }
}

TEST(PrefillSpeedTest, SeveralRequestsAndDecodesInOneIteration) {
  Watched watched;
  watched.noise = [&] { return std::exp(watched.gauss(0.03)); };
  for (int i = 0; i < 300; ++i) {
    watched.decoding = watched.below(200);
    watched.decode_length = 100 + watched.below(4000);
    EngineIteration iteration;
    for (std::uint64_t request = 0, count = watched.below(4); request < count; ++request) {
      iteration.add_prefill(watched.below(20000), 100 + watched.below(2000));
    }
    watched.iterate(iteration);
  }
  watched.decoding = 0;
  const PrefillEstimate estimate = *watched.speed.fit();
  EXPECT_NEAR(estimate.seconds_per_token, watched.engine.prefill, 0.1 * watched.engine.prefill);
  EXPECT_NEAR(estimate.tokens_per_second(20000), 40000 / 1.4, 0.1 * 40000 / 1.4);
}

TEST(PrefillSpeedTest, ChunkedPrefillBesideDecodes) {
  // 256 tokens an iteration beside 200 decodes: the decodes take most of the time.
  Watched watched;
  watched.decoding = 200;
  watched.decode_length = 2000;
  for (int i = 0; i < 30; ++i) {
    watched.prompt(300 + watched.below(6000), 0, 256);
  }
  EXPECT_NEAR(watched.speed.fit()->tokens_per_iteration, 256, 1);
  EXPECT_NEAR(watched.error(0, 8192, 256), 0, 0.03);
  EXPECT_GT(watched.truth(0, 8192, 256), 3 * 8192 * watched.engine.prefill) << "the iterations dominate";
}

TEST(PrefillSpeedTest, WithoutALimitAPromptIsOneIteration) {
  Watched watched;
  for (int i = 0; i < 20; ++i) {
    watched.prompt(100 + watched.below(1000));
  }
  EXPECT_TRUE(std::isinf(watched.speed.fit()->tokens_per_iteration));
  EXPECT_NEAR(watched.error(0, 10000), 0, 0.1);
}

TEST(PrefillSpeedTest, SpeculativeTokensAreDecodes) {
  Watched watched;
  watched.decoding = 100;
  watched.drafts = 4;
  for (int i = 0; i < 40; ++i) {
    watched.prompt(500 + watched.below(4000));
    watched.decode(9);
  }
  EXPECT_NEAR(watched.speed.fit()->seconds_per_token, watched.engine.prefill, 0.05 * watched.engine.prefill);
}

TEST(PrefillSpeedTest, StallsDoNotCount) {
  Watched watched;
  watched.noise = [&] { return watched.lot() < 0.1 ? 100 + 900 * watched.lot() : std::exp(watched.gauss(0.05)); };
  for (int i = 0; i < 200; ++i) {
    watched.prompt(500 + watched.below(6000));
    watched.decode(4);
  }
  EXPECT_NEAR(watched.error(0, 4000), 0, 0.1);
  // An engine that was stopped.
  watched.noise = [] { return 1e6; };
  watched.prompt(4000);
  EXPECT_NEAR(watched.error(0, 4000), 0, 0.1);
}

TEST(PrefillSpeedTest, IterationsThatSeemTooShortDoNotCount) {
  // An aborted request ends an iteration early.
  Watched watched;
  watched.noise = [&] { return watched.lot() < 0.1 ? 0.001 * watched.lot() : 1.0; };
  for (int i = 0; i < 200; ++i) {
    watched.prompt(500 + watched.below(6000));
    watched.decode(4);
  }
  EXPECT_NEAR(watched.error(0, 4000), 0, 0.1);
}

TEST(PrefillSpeedTest, AChangeOfSpeedIsNoticed) {
  Watched watched;
  const auto run = [&](int prompts) {
    for (int i = 0; i < prompts; ++i) {
      watched.prompt(1000 + watched.below(3000));
      watched.decode(20);
    }
  };
  run(100);
  watched.engine.prefill *= 3;
  run(16);
  EXPECT_NEAR(watched.error(0, 3000), 0, 0.1);
  watched.engine.prefill /= 6;
  run(16);
  EXPECT_NEAR(watched.error(0, 3000), 0, 0.1);
}

TEST(PrefillSpeedTest, ManyShortPrefillsDoNotDisplaceTheLongOnes) {
  Watched watched;
  for (int i = 0; i < 20; ++i) {
    watched.prompt(2000 + watched.below(6000));
  }
  // From here on nearly everything is cached.
  for (int i = 0; i < 5000; ++i) {
    watched.prompt(16 + watched.below(64), 5000);
  }
  EXPECT_NEAR(watched.error(0, 8000), 0, 0.05);
}

TEST(PrefillSpeedTest, NewIterationsCountMoreThanOldOnes) {
  Watched watched;
  for (int i = 0; i < 16; ++i) {
    watched.prompt(6000);
  }
  watched.pass(std::chrono::hours(1));
  watched.engine.prefill *= 2;
  for (int i = 0; i < 8; ++i) {
    watched.prompt(2000);
  }
  EXPECT_NEAR(watched.error(0, 2000), 0, 0.05);
  EXPECT_NEAR(watched.error(0, 6000), 0, 0.3) << "the long ones are from before";
}

TEST(PrefillSpeedTest, WaitsForTheIterationInProgress) {
  Watched watched;
  watched.engine = {.constant = 0.02, .prefill = 1e-9, .context = 0, .decode = 0, .decode_context = 0};
  for (int i = 0; i < 100; ++i) {
    watched.prompt(100);
  }
  EXPECT_NEAR(watched.speed.fit()->seconds_until_next, 0.01, 1e-4);
}

TEST(PrefillSpeedTest, NonsenseChangesNothing) {
  Watched watched;
  for (int i = 0; i < 10; ++i) {
    watched.prompt(1000 + 100 * i);
  }
  EngineIteration none;
  none.duration = std::chrono::seconds(1);
  watched.speed.add(none, {});
  EngineIteration timeless;
  timeless.add_prefill(0, 1000);
  watched.speed.add(timeless, {});
  timeless.duration = -std::chrono::seconds(1);
  watched.speed.add(timeless, {});
  timeless.duration = std::chrono::hours(3);
  watched.speed.add(timeless, {});
  timeless.duration = std::chrono::milliseconds(50);
  timeless.prefill_context = ~std::uint64_t{0};
  watched.speed.add(timeless, {});
  timeless.prefill_context = 1000;
  timeless.prefill_tokens = std::uint64_t{1} << 40;
  watched.speed.add(timeless, {});
  EXPECT_EQ(watched.speed.iterations(), 10U);
  EXPECT_NEAR(watched.error(0, 1500), 0, 0.02);
}

TEST(PrefillEstimateTest, AddsUpTokensContextAndIterations) {
  const PrefillEstimate estimate{
      .seconds_per_token = 2, .seconds_per_context = 0.5, .seconds_per_iteration = 100, .tokens_per_iteration = 4};
  EXPECT_EQ(estimate.seconds(3, 3), 0);
  EXPECT_EQ(estimate.seconds(0, 1), 102);
  EXPECT_EQ(estimate.seconds(10, 15), 5 * 2 + 0.5 * (10 + 11 + 12 + 13 + 14) + 200);
  EXPECT_EQ(PrefillEstimate::constant(1000).tokens_per_second(0), 1000);
  EXPECT_NEAR(PrefillEstimate::constant(1000).tokens_per_second(kContextOfTwiceTheTime), 500, 1e-9);
}

}  // namespace
}  // namespace cairn
