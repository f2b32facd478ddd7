#include "cairn/page/html.h"

#include <gtest/gtest.h>

namespace cairn::page {
namespace {

constexpr const char* kReplaced = "\xEF\xBF\xBD";

TEST(EscapeTest, MarkupBecomesText) {
  EXPECT_EQ(escape("<script>alert(\"1\" & '2')</script>"),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
}

TEST(EscapeTest, PlainTextAndUtf8StayAsTheyAre) {
  const std::string text = "a b\tc\nµ – 日本 \xF0\x9F\x97\xBB";
  EXPECT_EQ(escape(text), text);
  EXPECT_EQ(escape(""), "");
}

TEST(EscapeTest, BytesThatAreNoTextAreReplacedOneByOne) {
  EXPECT_EQ(escape(std::string_view("a\0b", 3)), std::string("a") + kReplaced + "b");
  EXPECT_EQ(escape("\x1B[0m"), std::string(kReplaced) + "[0m");
  EXPECT_EQ(escape("\x80"), kReplaced);                                               // continues nothing
  EXPECT_EQ(escape("\xE6\x97"), std::string(kReplaced) + kReplaced);                  // cut off
  EXPECT_EQ(escape("\xC0\xBC"), std::string(kReplaced) + kReplaced);                  // '<', too long
  EXPECT_EQ(escape("\xE0\x80\xBC"), std::string(kReplaced) + kReplaced + kReplaced);  // the same
  EXPECT_EQ(escape("\xED\xA0\x80"), std::string(kReplaced) + kReplaced + kReplaced);  // a surrogate
  EXPECT_EQ(escape("\xF4\x90\x80\x80"), std::string(kReplaced) + kReplaced + kReplaced + kReplaced);  // beyond Unicode
  EXPECT_EQ(escape("\xE6<b>"), std::string(kReplaced) + "&lt;b&gt;");  // what follows is not swallowed
}

}  // namespace
}  // namespace cairn::page
