#include "cairn/base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace cairn {
namespace {

std::string written(const std::function<void(JsonWriter&)>& write) {
  std::string out;
  JsonWriter json(out);
  write(json);
  return out;
}

TEST(JsonWriterTest, SeparatesFieldsAndElements) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_object();
              json.field("a", 1);
              json.begin_array("b");
              json.value(true);
              json.begin_object();
              json.end_object();
              json.begin_array();
              json.value("x");
              json.value(nullptr);
              json.end_array();
              json.end_array();
              json.begin_object("c");
              json.field("d", false);
              json.end_object();
              json.field("e", std::string("f"));
              json.end_object();
            }),
            R"({"a":1,"b":[true,{},["x",null]],"c":{"d":false},"e":"f"})");
}

TEST(JsonWriterTest, TakesValuesThatAreJsonAlready) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_array();
              json.raw("{\"a\":1}");
              json.raw("null");
              json.end_array();
            }),
            R"([{"a":1},null])");
}

TEST(JsonWriterTest, AppendsToExistingText) {
  std::string out = "before ";
  JsonWriter(out).value(7);
  EXPECT_EQ(out, "before 7");
}

TEST(JsonWriterTest, WritesIntegersOfAllSizes) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_array();
              json.value(std::numeric_limits<std::uint64_t>::max());
              json.value(std::numeric_limits<std::int64_t>::min());
              json.value(std::uint8_t{7});
              json.end_array();
            }),
            "[18446744073709551615,-9223372036854775808,7]");
}

TEST(JsonWriterTest, WritesDoublesShortOrRounded) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_array();
              json.value(0.1);
              json.value(1e21);
              json.value(2.0 / 3, 6);
              json.value(1234567.0, 6);
              json.value(0.0, 6);
              json.value(0.5, 6);
              json.value(std::numeric_limits<double>::quiet_NaN());
              json.value(std::numeric_limits<double>::infinity(), 6);
              json.end_array();
            }),
            "[0.1,1e+21,0.666667,1.23457e+06,0,0.5,null,null]");
}

TEST(JsonWriterTest, EscapesNamesAndText) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_object();
              json.field("a\"b", "c\\d\n\x01\x1f \x7f\xc3\xa9");
              json.end_object();
            }),
            "{\"a\\\"b\":\"c\\\\d\\u000a\\u0001\\u001f \x7f\xc3\xa9\"}");
}

TEST(JsonWriterTest, BreaksLinesAfterTheComma) {
  EXPECT_EQ(written([](JsonWriter& json) {
              json.begin_array();
              for (int i = 0; i < 2; ++i) {
                json.line_break();
                json.begin_array();
                json.value(i);
                json.end_array();
              }
              json.line_break();
              json.end_array();
            }),
            "[\n[0],\n[1]\n]");
}

}  // namespace
}  // namespace cairn
