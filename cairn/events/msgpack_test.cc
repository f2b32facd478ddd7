#include "cairn/events/msgpack.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace cairn {
namespace {

using internal::MsgpackReader;
using internal::MsgpackWriter;
using Type = MsgpackReader::Type;

std::string hex(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<std::uint8_t>(byte) >> 4];
    text += kDigits[static_cast<std::uint8_t>(byte) & 15];
  }
  return text;
}

TEST(MsgpackTest, NumbersHaveTheShortestForm) {
  const auto written = [](std::int64_t value) {
    std::string out;
    MsgpackWriter(out).signed_number(value);
    bool is_negative = false;
    MsgpackReader reader(out);
    EXPECT_EQ(static_cast<std::int64_t>(reader.number(&is_negative)), value);
    EXPECT_EQ(is_negative, value < 0);
    EXPECT_TRUE(reader.good() && reader.at_end());
    return hex(out);
  };
  EXPECT_EQ(written(0), "00");
  EXPECT_EQ(written(127), "7f");
  EXPECT_EQ(written(128), "cc80");
  EXPECT_EQ(written(256), "cd0100");
  EXPECT_EQ(written(65536), "ce00010000");
  EXPECT_EQ(written(4294967296), "cf0000000100000000");
  EXPECT_EQ(written(-1), "ff");
  EXPECT_EQ(written(-32), "e0");
  EXPECT_EQ(written(-33), "d0df");
  EXPECT_EQ(written(-129), "d1ff7f");
  EXPECT_EQ(written(-32769), "d2ffff7fff");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "d38000000000000000");
  std::string out;
  MsgpackWriter(out).unsigned_number(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(hex(out), "cfffffffffffffffff");
}

TEST(MsgpackTest, TextsAndContainersHaveTheShortestForm) {
  for (const std::size_t size : {0, 15, 16, 31, 32, 255, 256, 65535, 65536}) {
    std::string out;
    MsgpackWriter writer(out);
    writer.text(std::string(size, 'x'));
    writer.array(size);
    for (std::size_t i = 0; i < size; ++i) {
      writer.nil();
    }
    MsgpackReader reader(out);
    EXPECT_EQ(reader.text().size(), size);
    EXPECT_EQ(reader.array(), size);
    EXPECT_TRUE(reader.good());
    EXPECT_EQ(out.size(), 2 * size +
                              (size < 32      ? 1
                               : size < 256   ? 2
                               : size < 65536 ? 3
                                              : 5) +
                              (size < 16      ? 1
                               : size < 65536 ? 3
                                              : 5));
  }
}

TEST(MsgpackTest, AReaderSkipsWhateverThereIs) {
  std::string out;
  MsgpackWriter writer(out);
  writer.map(2);
  writer.text("a");
  writer.array(2);
  writer.real(1.5);
  writer.nil();
  writer.unsigned_number(7);
  writer.raw(
      std::string("\xc4\x02"
                  "ab\xc3",
                  5));  // two bytes; and the value `true` after the map
  writer.signed_number(-5);
  MsgpackReader reader(out);
  EXPECT_EQ(reader.skip().size(), out.size() - 2);
  EXPECT_EQ(reader.type(), Type::kFlag);
  reader.skip();
  EXPECT_EQ(static_cast<std::int64_t>(reader.number()), -5);
  EXPECT_TRUE(reader.good() && reader.at_end());
}

TEST(MsgpackTest, AReaderFailsOnceAndForAll) {
  for (const std::string& bytes : {std::string(), std::string("\xdd\xff\xff\xff\xff", 5),
                                   std::string("\xdf\x00\x00\x00\x02\x00\x00", 7), std::string("\xdb\xff\xff\xff\xff"),
                                   std::string("\xcf\x00", 2), std::string("\xc1"), std::string(1000, '\x91')}) {
    MsgpackReader reader(bytes);
    reader.skip();
    EXPECT_FALSE(reader.good()) << hex(bytes);
    EXPECT_EQ(reader.number(), 0U);
    EXPECT_EQ(reader.text(), "");
    EXPECT_EQ(reader.type(), Type::kEnd);
  }
  MsgpackReader other("\xa1x");
  EXPECT_EQ(other.array(), 0U) << "a text";
  EXPECT_FALSE(other.good());
  MsgpackReader large("\xce\xff\xff\xff\xff");
  EXPECT_EQ(large.small_number(), 0xffffffffU);
  MsgpackReader larger(std::string_view("\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9));
  EXPECT_EQ(larger.small_number(), 0U);
  EXPECT_FALSE(larger.good());
}

}  // namespace
}  // namespace cairn
