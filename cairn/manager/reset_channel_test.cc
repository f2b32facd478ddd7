#include "cairn/manager/reset_channel.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(ResetChannelTest, EveryReceiverSeesWhatComesAfterIt) {
  const auto channel = std::make_shared<ResetChannel>();
  channel->send(CacheLevel::kG1);
  ResetReceiver early = channel->subscribe();
  channel->send(CacheLevel::kG2);
  ResetReceiver late = channel->subscribe();
  channel->send(CacheLevel::kG3);
  EXPECT_EQ(early.try_next(), CacheLevel::kG2);
  EXPECT_EQ(early.try_next(), CacheLevel::kG3);
  EXPECT_EQ(early.try_next(), std::nullopt);
  EXPECT_EQ(late.try_next(), CacheLevel::kG3);
  EXPECT_EQ(late.try_next(), std::nullopt);
}

TEST(ResetChannelTest, KnowsWhatItMissed) {
  const auto channel = std::make_shared<ResetChannel>();
  ResetReceiver slow = channel->subscribe();
  for (std::size_t i = 0; i < ResetChannel::kKept + 5; ++i) {
    channel->send(CacheLevel::kG2);
  }
  std::size_t seen = 0;
  while (slow.try_next()) {
    ++seen;
  }
  EXPECT_EQ(seen, ResetChannel::kKept);
  EXPECT_EQ(slow.missed(), 5U);
}

TEST(ResetChannelTest, ReceiversOutliveTheChannelsOwner) {
  auto channel = std::make_shared<ResetChannel>();
  ResetReceiver receiver = channel->subscribe();
  channel->send(CacheLevel::kG1);
  channel.reset();
  EXPECT_EQ(receiver.try_next(), CacheLevel::kG1);
}

}  // namespace
}  // namespace cairn
