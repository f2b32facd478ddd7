#include "cairn/cluster/store_label.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr StoreLabel kLabel{.block_bytes = 65536, .tag = {1, 2}, .checksum = Checksum{3}, .tokens_hash = 4};

TEST(StoreLabelTest, ItIsReadBack) { EXPECT_EQ(*StoreLabel::decode(kLabel.encode()), kLabel); }

TEST(StoreLabelTest, EveryFlippedBitIsFound) {
  const StoreLabelBytes right = kLabel.encode();
  for (std::size_t bit = 0; bit < 8 * kStoreLabelBytes; ++bit) {
    StoreLabelBytes wrong = right;
    wrong[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto label = StoreLabel::decode(wrong);
    ASSERT_FALSE(label.has_value()) << bit;
    EXPECT_EQ(label.error().code, ErrorCode::kCorrupt);
  }
}

TEST(StoreLabelTest, ALabelNeedsItsSizeAndAChecksum) {
  const StoreLabelBytes bytes = kLabel.encode();
  EXPECT_FALSE(StoreLabel::decode(std::span(bytes).first(63)).has_value());
  StoreLabel none = kLabel;
  none.checksum = kNoChecksum;
  EXPECT_FALSE(StoreLabel::decode(none.encode()).has_value());
}

}  // namespace
}  // namespace cairn
