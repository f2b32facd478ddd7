#include "cairn/page/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cairn::page {
namespace {

// With ordinary spaces, which are easier to write.
std::string plain(std::string text) {
  for (std::size_t at = 0; (at = text.find("\u00A0")) != std::string::npos;) {
    text.replace(at, 2, " ");
  }
  return text;
}
std::string read(double value, Unit unit) { return plain(format(value, unit)); }

TEST(FormatTest, NumbersHaveCommasAndThreeDigitsThatCount) {
  EXPECT_EQ(read(0, Unit::kNumber), "0");
  EXPECT_EQ(read(-0.0, Unit::kNumber), "0");
  EXPECT_EQ(read(999, Unit::kNumber), "999");
  EXPECT_EQ(read(1234567, Unit::kNumber), "1,234,567");
  EXPECT_EQ(read(-1234567, Unit::kNumber), "-1,234,567");
  EXPECT_EQ(read(-123, Unit::kNumber), "-123");
  EXPECT_EQ(read(0.012345, Unit::kNumber), "0.0123");
  EXPECT_EQ(read(1.5, Unit::kNumber), "1.5");
  EXPECT_EQ(read(12.345, Unit::kNumber), "12.3");
  EXPECT_EQ(read(1234.5, Unit::kNumber), "1,234");
  EXPECT_EQ(read(99.999, Unit::kNumber), "100");
}

TEST(FormatTest, SharesAreReadInPercent) {
  EXPECT_EQ(read(0.19576, Unit::kShare), "19.58 %");
  EXPECT_EQ(read(1, Unit::kShare), "100.00 %");
  EXPECT_EQ(read(0.0123, Unit::kPoints), "+1.23 points");
  EXPECT_EQ(read(-0.0123, Unit::kPoints), "-1.23 points");
  EXPECT_EQ(read(-0.0000001, Unit::kPoints), "0.00 points");
  EXPECT_EQ(read(0.0000001, Unit::kPoints), "0.00 points");
}

TEST(FormatTest, TimesAndSizesTakeTheUnitThatFits) {
  EXPECT_EQ(read(0, Unit::kMilliseconds), "0 ms");
  EXPECT_EQ(read(0.0123, Unit::kMilliseconds), "12.3 µs");
  EXPECT_EQ(read(850, Unit::kMilliseconds), "850 ms");
  EXPECT_EQ(read(2345, Unit::kMilliseconds), "2.35 s");
  EXPECT_EQ(read(0, Unit::kSeconds), "0 s");
  EXPECT_EQ(read(144, Unit::kSeconds), "2.4 min");
  EXPECT_EQ(read(5400, Unit::kSeconds), "1.5 h");
  EXPECT_EQ(read(3 * 86400, Unit::kSeconds), "3 days");
  EXPECT_EQ(read(0, Unit::kBytes), "0 B");
  EXPECT_EQ(read(1.5e9, Unit::kBytes), "1.5 GB");
  EXPECT_EQ(read(-2e6, Unit::kBytes), "-2 MB");
}

TEST(FormatTest, WhatIsNotANumberIsADash) {
  EXPECT_EQ(format(std::numeric_limits<double>::quiet_NaN(), Unit::kNumber), "–");
  EXPECT_EQ(format(std::numeric_limits<double>::infinity(), Unit::kShare), "–");
  EXPECT_FALSE(format(std::numeric_limits<double>::max(), Unit::kNumber).empty());
}

TEST(FormatShortTest, KeepsThreeDigits) {
  EXPECT_EQ(plain(format_short(0)), "0");
  EXPECT_EQ(plain(format_short(1.567)), "1.57");
  EXPECT_EQ(plain(format_short(950)), "950");
  EXPECT_EQ(plain(format_short(12'345)), "12.3 k");
  EXPECT_EQ(plain(format_short(4'120'000)), "4.12 M");
  EXPECT_EQ(plain(format_short(-4'120'000)), "-4.12 M");
  EXPECT_EQ(format_short(std::numeric_limits<double>::quiet_NaN()), "–");
}

TEST(AxisUnitTest, IsChosenByTheLargestValue) {
  EXPECT_EQ(axis_unit(5400, Unit::kSeconds).name, "min");
  EXPECT_EQ(axis_unit(5400, Unit::kSeconds).factor, 60);
  EXPECT_EQ(axis_unit(120, Unit::kSeconds).name, "s");
  EXPECT_EQ(axis_unit(2500, Unit::kMilliseconds).name, "ms");
  EXPECT_EQ(axis_unit(60'000, Unit::kMilliseconds).name, "s");
  EXPECT_EQ(axis_unit(60'000, Unit::kMilliseconds).factor, 1000);
  EXPECT_EQ(axis_unit(5e9, Unit::kBytes).name, "GB");
  EXPECT_EQ(plain(axis_unit(50'000, Unit::kNumber).suffix), " k");
  EXPECT_EQ(axis_unit(5'000, Unit::kNumber).suffix, "");
  EXPECT_EQ(plain(axis_unit(0.4, Unit::kShare).suffix), " %");
}

TEST(FormatTickTest, HasTheDigitsOfTheStep) {
  EXPECT_EQ(format_tick(0, 0.25), "0.00");
  EXPECT_EQ(format_tick(0.5, 0.25), "0.50");
  EXPECT_EQ(format_tick(2, 0.5), "2.0");
  EXPECT_EQ(format_tick(20, 10), "20");
  EXPECT_EQ(format_tick(12000, 2000), "12,000");
  EXPECT_EQ(format_tick(0.3, 0.1), "0.3");
}

}  // namespace
}  // namespace cairn::page
