#include "cairn/manager/config_values.h"

#include <gtest/gtest.h>

#include <limits>

namespace cairn {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

TEST(ConfigValuesTest, Sizes) {
  EXPECT_EQ(parse_size("64GiB"), 64 * kGiB);
  EXPECT_EQ(parse_size("20 GB"), 20'000'000'000U);
  EXPECT_EQ(parse_size("1TB"), 1'000'000'000'000U);
  EXPECT_EQ(parse_size("3pib"), 3 * (std::uint64_t{1} << 50U));
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("7 B"), 7U);
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("18446744073709551615"), kMost);
  for (const char* bad :
       {"", " 1", "GiB", "1.5GiB", "-1", "1G", "1GiBs", "1 GiB ", "18446744073709551616", "16384PiB"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(ConfigValuesTest, SizesReadBackAsTheyWere) {
  EXPECT_EQ(print_size(64 * kGiB), "64GiB");
  EXPECT_EQ(print_size(kGiB + 1024), "1048577KiB");
  EXPECT_EQ(print_size(1000), "1000");
  EXPECT_EQ(print_size(900'000'000'000'000'000), "900PB");
  EXPECT_EQ(print_size(20'000'000'000), "20GB");
  EXPECT_EQ(print_size(0), "0");
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, kGiB, kGiB - 1, 3 * kGiB / 2, kMost}) {
    EXPECT_EQ(parse_size(print_size(size)), size);
  }
}

TEST(ConfigValuesTest, Durations) {
  EXPECT_EQ(parse_duration("5s"), std::chrono::seconds(5));
  EXPECT_EQ(parse_duration("250ms"), std::chrono::milliseconds(250));
  EXPECT_EQ(parse_duration("1m"), std::chrono::minutes(1));
  EXPECT_EQ(parse_duration("2 h"), std::chrono::hours(2));
  EXPECT_EQ(parse_duration("3us"), std::chrono::microseconds(3));
  for (const char* bad : {"", "5", "0s", "-1s", "1.5s", "s", "5sec", "5S", "9223372036854775808ns", "2562048h"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
  EXPECT_EQ(print_duration(std::chrono::seconds(90)), "90s");
  EXPECT_EQ(print_duration(std::chrono::minutes(60)), "1h");
  for (const Duration duration : {Duration(1), Duration(1'001), Duration::max(), Duration(std::chrono::hours(5))}) {
    EXPECT_EQ(parse_duration(print_duration(duration)), duration);
  }
  EXPECT_FALSE(parse_duration(print_duration(Duration(-5)))) << "a value out of range cannot be parsed again";
}

TEST(ConfigValuesTest, Shares) {
  EXPECT_DOUBLE_EQ(*parse_share("5%", 0, 1), 0.05);
  EXPECT_DOUBLE_EQ(*parse_share("2.5%", 0, 1), 0.025);
  EXPECT_EQ(parse_share("0.05", 0, 1), 0.05);
  EXPECT_EQ(parse_share("50%", 0, 0.5), 0.5);
  for (const char* bad : {"", "%", "51%", "0.51", "-1%", "5 %", "nan", "nan%", "1e999", "x"}) {
    EXPECT_FALSE(parse_share(bad, 0, 0.5)) << bad;
  }
}

TEST(ConfigValuesTest, Numbers) {
  EXPECT_EQ(parse_whole("16", 1, 16), 16U);
  for (const char* bad : {"", "0", "17", "-1", "+1", "1 ", " 1", "0x1", "1.0"}) {
    EXPECT_FALSE(parse_whole(bad, 1, 16)) << bad;
  }
  EXPECT_EQ(parse_real("1e6", 0, 1e9), 1e6);
  EXPECT_FALSE(parse_real("inf", 0, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(print_real(*parse_real("-0", 0, 1)), "0");
  for (const double value : {0.1, 1.0 / 3, 1e300, 12345.678}) {
    EXPECT_EQ(parse_real(print_real(value), 0, 1e308), value);
  }
}

TEST(ConfigValuesTest, Flags) {
  EXPECT_EQ(parse_flag("true"), true);
  EXPECT_EQ(parse_flag("1"), true);
  EXPECT_EQ(parse_flag("false"), false);
  EXPECT_EQ(parse_flag("0"), false);
  EXPECT_FALSE(parse_flag("True"));
  EXPECT_FALSE(parse_flag(""));
}

TEST(ConfigValuesTest, PlainText) {
  for (const char* good : {"", "/var/cache/cairn", "tp0/2", "Größe", "日本", "\xf0\x9f\xaa\xa8"}) {
    EXPECT_TRUE(is_plain_text(good)) << good;
  }
  for (const char* bad : {"a\nb", "\x1b[0m", "\x7f", "\x80", "\xc3", "\xc0\xaf", "\xc2\x85", "\xe0\x80\x80",
                          "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_plain_text(bad)) << bad;
  }
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
}

TEST(ConfigValuesTest, DistanceOfWords) {
  EXPECT_EQ(edit_distance("host.size", "host.size"), 0U);
  EXPECT_EQ(edit_distance("host.sise", "host.size"), 1U);
  EXPECT_EQ(edit_distance("host.sze", "host.size"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace cairn
