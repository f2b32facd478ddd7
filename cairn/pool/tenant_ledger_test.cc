#include "cairn/pool/tenant_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Source = TenantLedger::Source;

constexpr TenantId kA{0};
constexpr TenantId kB{1};
constexpr TenantId kC{2};

TEST(TenantLedgerTest, WithoutQuotasThereIsOneTenantWithTheWholePool) {
  const TenantLedger ledger = *TenantLedger::create({}, 10);
  EXPECT_EQ(ledger.tenant_count(), 1U);
  EXPECT_TRUE(ledger.can_take(kA, 10, 10));
  EXPECT_FALSE(ledger.can_take(kA, 11, 10));
  EXPECT_EQ(ledger.next_source(kA, 10, {}).source, Source::kFree);
}

TEST(TenantLedgerTest, ChargesAndDischarges) {
  TenantLedger ledger = *TenantLedger::create({{.name = "a"}, {.name = "b"}}, 10);
  ledger.charge(kB, 3);
  ledger.add_inactive(kB, 2);
  EXPECT_EQ(ledger.usage(kB)->used, 3U);
  EXPECT_EQ(ledger.usage(kB)->inactive, 2U);
  EXPECT_EQ(ledger.usage(kA)->used, 0U);
  ledger.remove_inactive(kB, 1);
  ledger.discharge(kB, 1);
  EXPECT_EQ(ledger.usage(kB)->used, 2U);
  EXPECT_EQ(ledger.usage(kB)->inactive, 1U);
}

TEST(TenantLedgerTest, FreeBlocksAreKeptForReservations) {
  TenantLedger ledger = *TenantLedger::create({{.name = "a", .reserved = 4}, {.name = "b"}}, 10);
  EXPECT_TRUE(ledger.can_take(kB, 6, 10));
  const Status status = ledger.can_take(kB, 7, 10);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("cannot allocate 7 blocks: 6 available (10 free in the pool)"));
  ledger.charge(kA, 4);
  EXPECT_TRUE(ledger.can_take(kB, 6, 6));
  ledger.discharge(kA, 1);
  EXPECT_FALSE(ledger.can_take(kB, 7, 7));
}

TEST(TenantLedgerTest, WhatOthersHoldWithinTheirReservationIsNotToBeHad) {
  TenantLedger ledger = *TenantLedger::create({{.name = "a", .reserved = 4}, {.name = "b"}}, 10);
  ledger.charge(kA, 6);
  ledger.add_inactive(kA, 6);
  EXPECT_TRUE(ledger.can_take(kB, 6, 4));  // four free ones and two that a has beyond its reservation
  EXPECT_FALSE(ledger.can_take(kB, 7, 4));
  EXPECT_TRUE(ledger.can_take(kA, 10, 4));  // its own, and the free ones
}

TEST(TenantLedgerTest, TheNextBlockIsFreeThenOfTheOneFurthestBeyond) {
  TenantLedger ledger = *TenantLedger::create({{.name = "a"}, {.name = "b", .reserved = 3}, {.name = "c"}}, 10);
  ledger.charge(kB, 6);
  ledger.add_inactive(kB, 6);
  ledger.charge(kC, 4);
  ledger.add_inactive(kC, 4);
  const TenantLedger::Next next = ledger.next_source(kA, 0, {});
  EXPECT_EQ(next.source, Source::kEvict);
  EXPECT_EQ(next.victim, kC);  // 4 beyond its reservation, b only 3
  TenantLedger::TenantSet barren;
  barren.set(index_of(kC));
  EXPECT_EQ(ledger.next_source(kA, 0, barren).victim, kB);
  barren.set(index_of(kB));
  EXPECT_EQ(ledger.next_source(kA, 0, barren).source, Source::kNone);
  EXPECT_EQ(ledger.next_source(kB, 0, {}).victim, kC);
  EXPECT_EQ(ledger.next_source(kC, 0, {}).victim, kC);
}

TEST(TenantLedgerTest, AtItsLimitATenantGivesItsOwn) {
  TenantLedger ledger = *TenantLedger::create({{.name = "a", .limit = 2}, {.name = "b"}}, 10);
  ledger.charge(kA, 2);
  ledger.add_inactive(kA, 1);
  ledger.charge(kB, 5);
  ledger.add_inactive(kB, 5);
  const TenantLedger::Next next = ledger.next_source(kA, 3, {});
  EXPECT_EQ(next.source, Source::kEvict);
  EXPECT_EQ(next.victim, kA);
  const Status status = ledger.can_take(kA, 2, 3);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(status.error().message, HasSubstr("tenant 'a' is limited to 2 and holds 2, of which 1 are inactive"));
}

// can_take() always agrees with what next_source() finds, and reservations stay covered.
TEST(TenantLedgerTest, WhatCanBeTakenIsFoundBlockByBlock) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    constexpr std::uint32_t kCapacity = 20;
    std::vector<TenantQuota> quotas;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::uint32_t reserved = random() % 7;
      quotas.push_back({.name = "t", .reserved = reserved, .limit = reserved + random() % 15});
    }
    TenantLedger ledger = *TenantLedger::create(quotas, kCapacity);
    std::uint32_t free = kCapacity;
    for (int step = 0; step < 60; ++step) {
      const TenantId tenant{static_cast<std::uint8_t>(random() % 3)};
      const std::uint32_t count = random() % 8;
      const bool can = ledger.can_take(tenant, count, free).has_value();
      std::uint32_t taken = 0;
      for (; can && taken < count; ++taken) {
        const TenantLedger::Next next = ledger.next_source(tenant, free, {});
        ASSERT_NE(next.source, Source::kNone);
        if (next.source == Source::kFree) {
          ASSERT_GT(free, 0U);
          --free;
        } else {
          ASSERT_GT(ledger.usage(next.victim)->inactive, 0U);
          ledger.remove_inactive(next.victim, 1);
          ledger.discharge(next.victim, 1);
        }
        ledger.charge(tenant, 1);
      }
      std::uint32_t unmet = 0;
      for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint32_t used = ledger.usage(TenantId{static_cast<std::uint8_t>(i)})->used;
        ASSERT_LE(used, *quotas[i].limit);
        unmet += used < quotas[i].reserved ? quotas[i].reserved - used : 0;
      }
      ASSERT_GE(free, unmet);
      // Some of what it holds is released, some freed.
      const TenantUsage usage = *ledger.usage(tenant);
      if (usage.used > usage.inactive && random() % 4 == 0) {
        ledger.discharge(tenant, 1);
        ++free;
      } else if (usage.used > usage.inactive) {
        ledger.add_inactive(tenant, 1 + random() % (usage.used - usage.inactive));
      }
    }
  }
}

TEST(TenantLedgerTest, TheTenantFurthestBeyondItsReservationGives) {
  TenantLedger ledger =
      *TenantLedger::create({{.name = "a", .reserved = 4}, {.name = "b"}, {.name = "c", .reserved = 4}}, 20);
  std::vector<std::uint32_t> gone(3);
  EXPECT_EQ(ledger.furthest_beyond(gone, {}), std::nullopt);
  const auto hold = [&](std::uint8_t tenant, std::uint32_t used, std::uint32_t inactive) {
    ledger.charge(TenantId{tenant}, used);
    ledger.add_inactive(TenantId{tenant}, inactive);
  };
  hold(0, 6, 6);
  hold(1, 4, 2);
  hold(2, 3, 3);
  EXPECT_EQ(ledger.furthest_beyond(gone, {}), TenantId{1});
  gone[1] = 2;  // it has no more than that
  EXPECT_EQ(ledger.furthest_beyond(gone, {}), TenantId{0});
  gone[0] = 2;
  EXPECT_EQ(ledger.furthest_beyond(gone, {}), TenantId{0}) << "none is beyond its reservation: the first gives";
  gone[0] = 6;
  EXPECT_EQ(ledger.furthest_beyond(gone, {}), TenantId{2}) << "within its reservation";
  TenantLedger::TenantSet barren;
  barren.set(2);
  EXPECT_EQ(ledger.furthest_beyond(gone, barren), std::nullopt);
}

}  // namespace
}  // namespace cairn
