#include "cairn/base/byte_stream.h"

#include <gtest/gtest.h>

#include <array>

namespace cairn {
namespace {

struct Pair {
  std::uint32_t one = 0;
  std::uint32_t two = 0;
  friend bool operator==(const Pair&, const Pair&) = default;
};
struct Holed {
  std::uint8_t small = 0;
  std::uint32_t large = 0;
};
static_assert(PlainField<Pair> && PlainField<std::array<std::byte, 16>>);
static_assert(!PlainField<Holed> && !PlainField<bool> && !PlainField<double> && !PlainField<const char*>);

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(ByteStreamTest, FieldsAreLittleEndianOneAfterTheOther) {
  std::vector<std::byte> out = bytes_of({99});
  ByteWriter writer(out);
  writer.put(std::uint16_t{0x0102});
  writer.put(Pair{3, 4});
  writer.text("ab");
  writer.list(std::vector<std::uint8_t>{5});
  EXPECT_EQ(out, bytes_of({99, 2, 1, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 'a', 'b', 1, 0, 0, 0, 5}));

  ByteReader reader{std::span(out).subspan(1)};
  EXPECT_EQ(reader.get<std::uint16_t>(), 0x0102);
  EXPECT_EQ(reader.get<Pair>(), (Pair{3, 4}));
  EXPECT_EQ(reader.text(), "ab");
  EXPECT_FALSE(reader.ended_well()) << "a list is unread";
  EXPECT_EQ(reader.list<std::uint8_t>(), std::vector<std::uint8_t>{5});
  EXPECT_TRUE(reader.ended_well());
}

TEST(ByteStreamTest, MissingBytesAreRefusedAndReadAsZero) {
  const std::vector<std::byte> bytes = bytes_of({1, 2, 3});
  ByteReader number(bytes);
  EXPECT_EQ(number.get<std::uint32_t>(), 0U);
  EXPECT_FALSE(number.good());
  EXPECT_EQ(number.get<std::uint8_t>(), 0U) << "nothing is read after that";

  const std::vector<std::byte> huge = bytes_of({255, 255, 255, 255, 7, 7, 7, 7, 7, 7, 7});
  ByteReader list(huge);
  EXPECT_EQ(list.list<Pair>().capacity(), 0U);
  EXPECT_FALSE(list.good());
  ByteReader text(huge);
  EXPECT_EQ(text.text(), "");
  EXPECT_FALSE(text.good());
  ByteReader elements(bytes);
  EXPECT_EQ(elements.elements<std::uint16_t>(2).capacity(), 0U);
  EXPECT_FALSE(elements.good());
}

TEST(ByteStreamTest, CountsFitWhatFollows) {
  const std::vector<std::byte> bytes = bytes_of({2, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(ByteReader(bytes).count(3), 2U);
  EXPECT_EQ(ByteReader(bytes).count(4), 0U);
}

TEST(ByteStreamTest, EmptyListsAreGood) {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.list(std::vector<Pair>());
  writer.text("");
  ByteReader reader(out);
  EXPECT_TRUE(reader.list<Pair>().empty());
  EXPECT_EQ(reader.text(), "");
  EXPECT_TRUE(reader.ended_well());
}

}  // namespace
}  // namespace cairn
