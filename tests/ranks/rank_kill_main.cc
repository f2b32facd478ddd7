#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/ranks/rank_kill_testing.h"

namespace cairn::testing {

namespace {

// A sanitized process takes several times as long to begin.
int all_kills = CAIRN_SANITIZED ? 40 : 200;
std::uint64_t seed = 1;

}  // namespace

void set_kills(int kills, std::uint64_t from_seed) {
  all_kills = kills;
  seed = from_seed;
}
std::uint64_t kill_seed() { return seed; }
int kills_for(std::uint32_t) { return (all_kills + 3) / 4; }

}  // namespace cairn::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  int kills = cairn::testing::kills_for(1) * 4;
  std::uint64_t seed = cairn::testing::kill_seed();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--kills") {
      kills = std::atoi(argv[i + 1]);
    } else if (name == "--seed") {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      std::cerr << "rank_kill_test [--kills N] [--seed S]\n";
      return 2;
    }
  }
  cairn::testing::set_kills(kills, seed);
  return RUN_ALL_TESTS();
}
