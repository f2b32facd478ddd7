#include "cairn/cluster/remote_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "cairn/cluster/memory_store_testing.h"

namespace cairn::testing {
namespace {

class RemoteSpaceTest : public ::testing::Test {
 protected:
  [[nodiscard]] RemoteSpace open(std::uint64_t space = 7, const std::string& tenant = "") {
    return RemoteSpace(store_, clock_, {.tenant = tenant, .space = NamespaceId{space}});
  }
  void break_store(bool broken) {
    server_->set_fault([broken](StoreOperation, const StoreItem&) {
      return broken ? std::optional(StoreOutcome{.state = StoreState::kUnavailable, .error = "gone"}) : std::nullopt;
    });
  }

  ManualClock clock_;
  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>();
  MemoryStore store_{server_, clock_};
};

TEST_F(RemoteSpaceTest, TenantsAndNamespacesHaveTheirOwnKeys) {
  EXPECT_THAT(*open().prefix(), ::testing::MatchesRegex("cairn/1/-/0000000000000007/[0-9a-f]{16}/"));
  EXPECT_THAT(*open(7, "a/b c").prefix(), ::testing::MatchesRegex("cairn/1/a%2Fb%20c/0000000000000007/[0-9a-f]{16}/"));
  EXPECT_NE(*open(8).prefix(), *open(7).prefix());
  EXPECT_EQ(store_key("p/", {1, 0xab}), "p/000000000000000100000000000000ab");
}

TEST_F(RemoteSpaceTest, AResetIsSeenByWhoStartsLater) {
  RemoteSpace first = open();
  const std::string before = *first.prefix();
  ASSERT_TRUE(first.begin_era().has_value());
  const std::string after = *first.prefix();
  EXPECT_NE(after, before);
  EXPECT_EQ(*open().prefix(), after);
  const std::string of_another = *open(8).prefix();
  ASSERT_TRUE(first.begin_era().has_value());
  EXPECT_NE(*first.prefix(), after);
  EXPECT_EQ(*open(8).prefix(), of_another);
}

TEST_F(RemoteSpaceTest, ProcessesWithoutAnEraAgreeOnOne) {
  RemoteSpace first = open();
  RemoteSpace second = open();
  EXPECT_EQ(*first.prefix(), *second.prefix());
}

TEST_F(RemoteSpaceTest, AStoreThatLostTheEraOfAResetDoesNotFindWhatWasBefore) {
  RemoteSpace space = open();
  const std::string before = *space.prefix();
  ASSERT_TRUE(space.begin_era().has_value());
  const std::string after = *space.prefix();
  server_->clear();
  const std::string later = *open().prefix();
  EXPECT_NE(later, before);
  EXPECT_NE(later, after);
}

TEST_F(RemoteSpaceTest, WithoutTheStoreThereAreNoKeys) {
  break_store(true);
  RemoteSpace space = open();
  EXPECT_FALSE(space.prefix().has_value());
  EXPECT_EQ(space.error(), "gone");
  break_store(false);
  EXPECT_FALSE(space.prefix().has_value());  // asked for again only after a while
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(space.prefix().has_value());
  EXPECT_EQ(space.error(), "");
}

TEST_F(RemoteSpaceTest, AResetThatCannotBeWrittenLeavesNoKeysUntilItIs) {
  RemoteSpace space = open();
  const std::string before = *space.prefix();
  break_store(true);
  EXPECT_FALSE(space.begin_era().has_value());
  EXPECT_FALSE(space.prefix().has_value());
  EXPECT_EQ(
      *[&] {
        break_store(false);
        return open().prefix();
      }(),
      before);  // who starts now does not know of the reset
  clock_.advance(std::chrono::seconds(1));
  const std::optional<std::string> after = space.prefix();
  ASSERT_TRUE(after.has_value());
  EXPECT_NE(*after, before);
  EXPECT_EQ(*open().prefix(), *after);
}

TEST_F(RemoteSpaceTest, AStoreThatKeepsNothingIsAskedAgainOnlyAfterAWhile) {
  int requests = 0;
  server_->set_fault([&requests](StoreOperation operation, const StoreItem&) {
    ++requests;
    return std::optional(
        StoreOutcome{.state = operation == StoreOperation::kPut ? StoreState::kDone : StoreState::kAbsent});
  });
  RemoteSpace space = open();
  EXPECT_FALSE(space.prefix().has_value());
  EXPECT_FALSE(space.prefix().has_value());
  EXPECT_EQ(requests, 3);
  EXPECT_THAT(space.error(), ::testing::HasSubstr("does not keep"));
}

TEST_F(RemoteSpaceTest, NewWeightsAreAnotherNamespace) {
  RemoteSpace space = open();
  ASSERT_TRUE(space.begin_era().has_value());
  space.enter(NamespaceId{9});
  EXPECT_THAT(*space.prefix(), ::testing::StartsWith("cairn/1/-/0000000000000009/"));
}

TEST_F(RemoteSpaceTest, ADamagedEraLeavesNoKeys) {
  RemoteSpace space = open();
  ASSERT_TRUE(space.begin_era().has_value());
  ASSERT_EQ(server_->flip_a_bit(20), 1U);
  RemoteSpace other = open();
  EXPECT_FALSE(other.prefix().has_value());
  EXPECT_THAT(other.error(), ::testing::HasSubstr("damaged"));
}

}  // namespace
}  // namespace cairn::testing
