#include "cairn/pool/class_layout.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(ClassLayoutTest, GivesBackWhatAClassWasMadeOf) {
  const ClassLayout classes(3, kHintLevels);
  const EvictionClass c = classes.class_of(TenantId{2}, 77, 11);
  EXPECT_EQ(classes.tenant_of(c), TenantId{2});
  EXPECT_EQ(classes.priority_of(c), 77U);
  EXPECT_EQ(classes.level_of(c), 11U);
}

TEST(ClassLayoutTest, OrdersByTenantThenPriorityThenLevel) {
  const ClassLayout classes(2, kHintLevels);
  EXPECT_LT(classes.class_of(TenantId{0}, 35, 15), classes.class_of(TenantId{0}, 36, 0));
  EXPECT_LT(classes.class_of(TenantId{0}, 35, 7), classes.class_of(TenantId{0}, 35, 8));
  EXPECT_LT(classes.class_of(TenantId{0}, 100, 15), classes.class_of(TenantId{1}, 0, 0));
}

TEST(ClassLayoutTest, WithoutHintsLevelsMakeNoDifference) {
  const ClassLayout classes(1, 1);
  EXPECT_EQ(classes.class_of(kDefaultTenant, 35, 3), classes.class_of(kDefaultTenant, 35, 9));
  EXPECT_EQ(classes.level_of(classes.class_of(kDefaultTenant, 35, 9)), 0U);
  EXPECT_EQ(classes.count(), Retention::kMaxPriority + 1);
}

TEST(ClassLayoutTest, TheClassesOfATenantAreARange) {
  const ClassLayout classes(3, kHintLevels);
  const ClassRange range = classes.of_tenant(TenantId{1});
  EXPECT_EQ(range.first, index_of(classes.class_of(TenantId{1}, 0, 0)));
  EXPECT_EQ(range.last, index_of(classes.class_of(TenantId{2}, 0, 0)));
  EXPECT_EQ(classes.all().last, classes.count());
}

TEST(ClassLayoutTest, AsManyTenantsAsItPromisesHaveClassesOfTheirOwn) {
  for (const std::uint32_t levels : {1U, kHintLevels}) {
    const std::uint32_t most = ClassLayout::max_tenants(levels);
    EXPECT_LE(ClassLayout(most, levels).count(), ClassLayout::kMaxClasses);
    EXPECT_GT(ClassLayout(most + 1, levels).count(), ClassLayout::kMaxClasses);
  }
}

}  // namespace
}  // namespace cairn
