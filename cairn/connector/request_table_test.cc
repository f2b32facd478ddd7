#include "cairn/connector/request_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using testing::kBlockSize;

class RequestTableTest : public ::testing::Test {
 protected:
  RequestEntry* create(const RequestId& request) { return *requests_.create(request, testing::tokens(5), {}, {}, {}); }
  RequestTable requests_ = *RequestTable::make(kBlockSize, KeyHasher::of_process());
};

TEST_F(RequestTableTest, FindsByHandleAndById) {
  RequestEntry* const one = create("a");
  RequestEntry* const two = create(7U);
  const std::optional<RequestHandle> a = requests_.handle_of("a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(requests_.size(), 2);
  ASSERT_NE(requests_.find(*a), nullptr);
  EXPECT_EQ(requests_.find(*a), one);
  EXPECT_EQ(requests_.find(*a)->handle, *a);
  EXPECT_EQ(*requests_.find(*a)->id, RequestId("a"));
  EXPECT_EQ(requests_.find(*requests_.handle_of(7U)), two);
  EXPECT_EQ(requests_.handle_of("7"), std::nullopt);
  EXPECT_EQ(requests_.find("a"), one);
  EXPECT_EQ(requests_.find("b"), nullptr);
  EXPECT_TRUE(requests_.contains(7U));
}

TEST_F(RequestTableTest, AHandleIsNeverUsedAgain) {
  std::set<RequestHandle> seen;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(create("a")->slot.mark_as_finished(0));
    const RequestHandle handle = *requests_.handle_of("a");
    EXPECT_TRUE(seen.insert(handle).second);
    requests_.find(handle)->is_abandoned = true;
    EXPECT_EQ(requests_.remove(*requests_.find(handle)), RequestId("a"));
    EXPECT_EQ(requests_.find(handle), nullptr);
    EXPECT_EQ(requests_.handle_of("a"), std::nullopt);
  }
  (void)create("b");
  EXPECT_FALSE(requests_.find(*requests_.handle_of("b"))->is_abandoned)
      << "nothing is left of the request that had the place before";
  for (const RequestHandle old : seen) {
    EXPECT_EQ(requests_.find(old), nullptr);
  }
}

TEST_F(RequestTableTest, AHandleThatWasNeverGivenOutIsNotFound) {
  EXPECT_EQ(requests_.find(RequestHandle{0}), nullptr);
  EXPECT_EQ(requests_.find(RequestHandle{~std::uint64_t{0}}), nullptr);
  (void)create("a");
  EXPECT_EQ(requests_.find(RequestHandle{0}), nullptr) << "the place exists, but had no request yet";
  EXPECT_EQ(requests_.find(RequestHandle{static_cast<std::uint64_t>(*requests_.handle_of("a")) + 1}), nullptr);
}

}  // namespace
}  // namespace cairn
