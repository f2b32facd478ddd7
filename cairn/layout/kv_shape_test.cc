#include "cairn/layout/block_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr KvShape kLlama8b{32, 2, 16, 8, 128, 16};

TEST(KvShapeTest, CountsBytesAndRows) {
  EXPECT_TRUE(kLlama8b.validate());
  EXPECT_EQ(kLlama8b.row_bytes(), 256U);
  EXPECT_EQ(kLlama8b.rows(), 32U * 2 * 16 * 8);
  EXPECT_EQ(kLlama8b.block_bytes(), 2U << 20U);
  const KvShape mla{61, 1, 16, 1, 576, 16};
  EXPECT_TRUE(mla.validate());
  EXPECT_EQ(mla.block_bytes(), 61U * 16 * 1152);
  const KvShape packed{1, 2, 1, 1, 3, 8};
  EXPECT_TRUE(packed.validate());
  EXPECT_EQ(packed.row_bytes(), 3U);
}

TEST(KvShapeTest, NumbersRowsByLayerKvTokenHead) {
  const KvShape shape{3, 2, 4, 5, 8, 4};
  std::uint64_t expected = 0;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t kv = 0; kv < 2; ++kv) {
      for (std::uint32_t token = 0; token < 4; ++token) {
        for (std::uint32_t head = 0; head < 5; ++head) {
          EXPECT_EQ(shape.row(layer, kv, token, head), expected++);
        }
      }
    }
  }
  EXPECT_EQ(expected, shape.rows());
}

TEST(KvShapeTest, RefusesWhatIsNoShape) {
  const auto message = [](auto change) {
    KvShape shape = kLlama8b;
    change(shape);
    const Status status = shape.validate();
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_THAT(message([](KvShape& s) { s.layers = 0; }), HasSubstr("layers 0"));
  EXPECT_THAT(message([](KvShape& s) { s.kv = 0; }), HasSubstr("kv 0"));
  EXPECT_THAT(message([](KvShape& s) { s.kv = 3; }), HasSubstr("kv is 3"));
  EXPECT_THAT(message([](KvShape& s) { s.page_size = 0; }), HasSubstr("page_size 0"));
  EXPECT_THAT(message([](KvShape& s) { s.heads = 0; }), HasSubstr("heads 0"));
  EXPECT_THAT(message([](KvShape& s) { s.head_size = 0; }), HasSubstr("head_size 0"));
  EXPECT_THAT(message([](KvShape& s) { s.element_bits = 3; }), HasSubstr("elements of 3 bits"));
  EXPECT_THAT(message([](KvShape& s) { s.element_bits = 65; }), HasSubstr("elements of 65 bits"));
  EXPECT_THAT(message([](KvShape& s) {
                s.element_bits = 4;
                s.head_size = 5;
              }),
              HasSubstr("5 elements of 4 bits"));
}

TEST(KvShapeTest, EveryWidthFromFourBitsToEightBytes) {
  for (std::uint32_t bits = 4; bits <= 64; ++bits) {
    const KvShape shape{1, 2, 16, 8, 8, bits};
    EXPECT_TRUE(shape.validate()) << bits;
    EXPECT_EQ(shape.row_bytes(), bits);
  }
}

TEST(KvShapeTest, ABlockHasAtMostAsManyWordsAsChecksumsCount) {
  // 2^32 words: rows of 1 byte count a word each.
  EXPECT_TRUE((KvShape{1U << 15U, 2, 1U << 8U, 1U << 8U, 1, 8}.validate()));
  const Status one_more = KvShape{(1U << 15U) + 1, 2, 1U << 8U, 1U << 8U, 1, 8}.validate();
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, ErrorCode::kOutOfRange);
  EXPECT_THAT(one_more.error().message, HasSubstr("32769 layers"));
  EXPECT_FALSE((KvShape{~0U, 2, ~0U, ~0U, ~0U, 64}.validate()));
  EXPECT_FALSE((KvShape{1U << 16U, 1, 1, 1, ~0U, 64}.validate()));
  EXPECT_FALSE((KvShape{1, 1, ~0U, ~0U, 1, 8}.validate()));
}

TEST(KvShapeTest, LayersAreLimited) {
  EXPECT_TRUE((KvShape{1U << 16U, 1, 1, 1, 1, 8}.validate()));
  const Status more = KvShape{(1U << 16U) + 1, 1, 1, 1, 1, 8}.validate();
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("65537 layers"));
}

}  // namespace
}  // namespace cairn
