#include "cairn/page/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>

namespace cairn::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

// The paths of the elements of this class, in drawing order.
std::vector<std::string> paths(const std::string& svg, const std::string& part) {
  std::vector<std::string> out;
  const std::regex path("<path class=\"" + part + "\" d=\"([^\"]*)\"");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), path); it != std::sregex_iterator(); ++it) {
    out.push_back((*it)[1]);
  }
  return out;
}

Chart line(std::vector<Point> points) { return {.title = "t", .series = {{.name = "s", .points = std::move(points)}}}; }

TEST(PlotTest, ALineGoesThroughItsPoints) {
  const Chart chart = line({{0, 0}, {5, 10}, {10, 5}});
  const Plot plot = *Plot::make(chart);
  const std::string expected = "M" + plot.x_text(0) + " " + plot.y_text(0) + "L" + plot.x_text(5) + " " +
                               plot.y_text(10) + "L" + plot.x_text(10) + " " + plot.y_text(5);
  EXPECT_EQ(paths(plot.svg("a"), "stroke").at(0), expected);
  EXPECT_LT(std::stod(plot.y_text(10)), std::stod(plot.y_text(0))) << "more is higher";
  EXPECT_LT(std::stod(plot.x_text(0)), std::stod(plot.x_text(10)));
}

TEST(PlotTest, ALineIsBrokenWhereThereIsNoValue) {
  const Chart chart =
      line({{0, 1}, {1, 2}, {2, std::nullopt}, {3, 1}, {4, std::numeric_limits<double>::quiet_NaN()}, {5, 2}});
  const std::string path = paths(Plot::make(chart)->svg("a"), "stroke").at(0);
  EXPECT_EQ(count(path, "M"), 3U);
  EXPECT_EQ(count(path, "L"), 1U);
  EXPECT_EQ(count(path, "h0"), 2U) << "a point alone is a dot";
  EXPECT_THAT(path, Not(HasSubstr("nan")));
}

TEST(PlotTest, NothingToDrawIsNoPlot) {
  EXPECT_FALSE(Plot::make({.title = "empty"}));
  EXPECT_FALSE(Plot::make(line({})));
  EXPECT_FALSE(Plot::make(line({{1, std::nullopt}})));
  Chart log = line({{1, 0}, {2, -3}});
  log.y.scale = Axis::Scale::kLog;
  EXPECT_FALSE(Plot::make(log));
}

TEST(PlotTest, EveryPlaceIsInsideTheDrawing) {
  Chart chart = line({{-1e9, -1e12}, {0, 0}, {1e9, 1e12}});
  chart.marks = {{Mark::Across::kX, 5e9, "far"}, {Mark::Across::kY, 2e12, "high"}};
  const std::string svg = Plot::make(chart)->svg("a");
  const std::regex place("[ML](-?[0-9.]+) (-?[0-9.]+)");
  int places = 0;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), place); it != std::sregex_iterator(); ++it, ++places) {
    EXPECT_GE(std::stod((*it)[1]), 0);
    EXPECT_LE(std::stod((*it)[1]), 560);
    EXPECT_GE(std::stod((*it)[2]), 0);
    EXPECT_LE(std::stod((*it)[2]), 300);
  }
  EXPECT_GT(places, 10);
}

TEST(PlotTest, BarsStandSideBySideAndEmptyOnesAreLeftOut) {
  Chart chart{
      .title = "t",
      .series = {{.name = "s", .look = Series::Look::kBars, .points = {{0, 4}, {10, 0}, {20, 8}, {30, std::nullopt}}}}};
  const Plot plot = *Plot::make(chart);
  const std::string body = paths(plot.svg("a"), "body").at(0);
  EXPECT_EQ(count(body, "z"), 2U);
  EXPECT_THAT(body, HasSubstr("M" + plot.x_text(20) + " " + plot.y_text(0) + "V" + plot.y_text(8)));
  const double middle = std::stod(plot.middle_text(0, 10));
  EXPECT_NEAR(middle, (std::stod(plot.x_text(0)) + std::stod(plot.x_text(10))) / 2, 0.11);
}

TEST(PlotTest, SeveralBarSeriesAreOutlinesThatAllCanBeSeen) {
  const Series bars{.name = "s", .look = Series::Look::kBars, .points = {{0, 4}, {10, 2}, {20, std::nullopt}}};
  const std::string svg = Plot::make({.title = "t", .series = {bars, bars}})->svg("a");
  EXPECT_TRUE(paths(svg, "body").empty());
  EXPECT_EQ(paths(svg, "stroke").size(), 2U);
}

TEST(PlotTest, ABarFromZeroOnALogarithmicAxisBeginsAtTheEdge) {
  Chart chart{.title = "t",
              .x = {.scale = Axis::Scale::kLog},
              .series = {{.name = "s", .look = Series::Look::kBars, .points = {{0, 4}, {1, 3}, {100, std::nullopt}}}}};
  const Plot plot = *Plot::make(chart);
  EXPECT_EQ(count(paths(plot.svg("a"), "body").at(0), "z"), 2U);
  EXPECT_NE(plot.middle_text(0, 1), "");
}

TEST(PlotTest, AnAreaReachesDownToZero) {
  const Chart chart{.title = "t", .series = {{.name = "s", .look = Series::Look::kArea, .points = {{0, 4}, {10, 8}}}}};
  const Plot plot = *Plot::make(chart);
  const std::string fill = paths(plot.svg("a"), "fill").at(0);
  EXPECT_TRUE(fill.starts_with("M" + plot.x_text(0) + " " + plot.y_text(0)));
  EXPECT_TRUE(fill.ends_with("L" + plot.x_text(10) + " " + plot.y_text(0) + "z"));
}

TEST(PlotTest, AMarkBeyondTheDataMakesRoomForItself) {
  Chart chart = line({{0, 1}, {1, 2}});
  chart.marks = {{Mark::Across::kY, 100, "capacity"}};
  const Plot plot = *Plot::make(chart);
  EXPECT_GT(std::stod(plot.y_text(2)), std::stod(plot.y_text(99)) + 100);
  EXPECT_THAT(plot.svg("a"), HasSubstr(">capacity</text>"));
}

TEST(PlotTest, LabelsBelowDoNotOverlap) {
  Chart chart = line({{0, 1}, {1, 1}, {1.01, 1}, {2, 1}});
  chart.x.ticks = {{0, "a very long label"}, {1, "one"}, {1.01, "hidden"}, {2, "two"}};
  const std::string svg = Plot::make(chart)->svg("a");
  EXPECT_THAT(svg, HasSubstr(">one</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">hidden</text>")));
  EXPECT_THAT(svg, HasSubstr(">two</text>"));
}

TEST(PlotTest, NamesAreEscaped) {
  Chart chart = line({{0, 1}});
  chart.title = "<b>";
  chart.series[0].name = "<i>";
  chart.x.label = "<x>";
  chart.marks = {{Mark::Across::kX, 0, "<m>"}};
  const std::string svg = Plot::make(chart)->svg("a");
  for (const char* raw : {"<b>", "<i>", "<x>", "<m>"}) {
    EXPECT_THAT(svg, Not(HasSubstr(raw)));
  }
}

TEST(SeriesClassTest, BoundsTakeNoColourAndColoursComeAround) {
  Chart chart;
  chart.series.resize(10);
  chart.series[1].look = Series::Look::kBound;
  chart.series[2].look = Series::Look::kThin;
  EXPECT_EQ(series_class(chart, 0), "series line c0");
  EXPECT_EQ(series_class(chart, 1), "series line bound");
  EXPECT_EQ(series_class(chart, 2), "series line thin c1");
  EXPECT_EQ(series_class(chart, 9), "series line c0");
}

TEST(SeriesClassTest, FortySeriesAllLookDifferent) {
  std::set<std::pair<std::string, std::string>> looks;
  Chart chart;
  chart.series.resize(kMarkers * kColours);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    looks.emplace(series_class(chart, i), marker(0, 0, i));
  }
  EXPECT_EQ(looks.size(), chart.series.size());
}

}  // namespace
}  // namespace cairn::page
