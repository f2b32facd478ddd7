#include "cairn/evict/ghost_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

TEST(GhostListsTest, RemembersWhichListAKeyIsIn) {
  GhostLists ghosts = *GhostLists::create(10, 2);
  ghosts.push(0, root_key(1));
  ghosts.push(1, root_key(2));
  ghosts.push(1, root_key(1));
  EXPECT_EQ(ghosts.size(0), 0U);
  EXPECT_EQ(ghosts.size(1), 2U);
  EXPECT_EQ(ghosts.take(root_key(1)), 1U);
  EXPECT_EQ(ghosts.take(root_key(1)), std::nullopt);
  EXPECT_EQ(ghosts.take(root_key(3)), std::nullopt);
  EXPECT_EQ(ghosts.size(1), 1U);
}

TEST(GhostListsTest, OfNoneRemembersNone) {
  GhostLists ghosts = *GhostLists::create(0, 1);
  ghosts.push(0, root_key(1));
  EXPECT_EQ(ghosts.take(root_key(1)), std::nullopt);
}

// Against plain queues.
TEST(GhostListsTest, ForgetsTheOldestOfTheLongestList) {
  constexpr std::uint32_t kCapacity = 50;
  GhostLists ghosts = *GhostLists::create(kCapacity, 3);
  std::array<std::deque<std::uint64_t>, 3> model;
  std::mt19937 random(1);
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t name = 1 + random() % 120;
    const std::uint32_t list = random() % 3;
    std::optional<std::uint32_t> was;
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (std::erase(model[i], name) > 0) {
        was = i;
      }
    }
    switch (random() % 8) {
      case 0:
        ASSERT_EQ(ghosts.take(root_key(name)), was);
        break;
      case 1:
        ASSERT_EQ(ghosts.take(root_key(name)), was);
        if (!model[list].empty()) {
          ghosts.drop_oldest(list);
          model[list].pop_front();
        }
        break;
      default:
        if (model[0].size() + model[1].size() + model[2].size() == kCapacity) {
          std::ranges::max_element(model, {}, &std::deque<std::uint64_t>::size)->pop_front();
        }
        model[list].push_back(name);
        ghosts.push(list, root_key(name));
        break;
    }
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_EQ(ghosts.size(i), model[i].size());
    }
  }
}

}  // namespace
}  // namespace cairn
