#include "cairn/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace cairn::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Page small_page() {
  const Chart chart{.title = "Hits",
                    .note = "What is found.",
                    .x = {.label = "Time", .unit = Unit::kSeconds},
                    .y = {.label = "Share", .unit = Unit::kShare},
                    .series = {{.name = "lru", .points = {{0, 0.25}, {1, std::nullopt}, {2, 0.5}}},
                               {.name = "opt", .look = Series::Look::kBound, .points = {{0, 0.5}, {4, 0.75}}}}};
  return {
      .title = "A page",
      .lead = "What it shows.",
      .command = "cairn x",
      .sections = {
          {.title = "Part",
           .text = "More.",
           .figures = {{"Hit ratio", "25 %", "of all"}},
           .charts = {chart},
           .tables = {{.title = "All", .head = {"policy", "1 %"}, .rows = {{{"lru"}, {"0.5", Cell::Look::kBest}}}}}}}};
}

TEST(RenderTest, HoldsEverythingThatItWasGiven) {
  const std::string html = render(small_page());
  for (const char* piece :
       {"<title>A page</title>", "<h1>A page</h1>", "What it shows.", "<code>cairn x</code>", "<h2>Part</h2>", "More.",
        "<dt>Hit ratio</dt><dd>25 %</dd><dd class=\"note\">of all</dd>", "<h3>Hits</h3>", "What is found.",
        "<th scope=\"row\">lru</th><td class=\"best\">0.5</td>"}) {
    EXPECT_THAT(html, HasSubstr(piece));
  }
}

TEST(RenderTest, IsOneFileThatLoadsNothing) {
  const std::string html = render(small_page());
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, HasSubstr("@media (prefers-color-scheme: dark)"));
  // The icon is inline; the only URL is the name of the SVG namespace.
  const std::regex loads("(src|href)=\"(?!data:)|url\\(|@import|<iframe|fetch\\(");
  EXPECT_FALSE(std::regex_search(html, loads));
}

TEST(RenderTest, TheTableOfAChartHasARowForEveryX) {
  const std::string html = render(small_page());
  const std::regex row("<tr data-x=\"[0-9.]+\"><th scope=\"row\">([^<]*)</th>(.*?)</tr>");
  std::vector<std::string> rows;
  for (auto it = std::sregex_iterator(html.begin(), html.end(), row); it != std::sregex_iterator(); ++it) {
    rows.push_back((*it)[1].str() + std::regex_replace((*it)[2].str(), std::regex("<[^>]*>"), "|"));
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("0\u00A0s|25.00\u00A0%||50.00\u00A0%|",  // both have a value
                                           "1\u00A0s|–|||",                         // the first is broken here
                                           "2\u00A0s|50.00\u00A0%|||",              // the second has none here
                                           "4\u00A0s|||75.00\u00A0%|"));
}

TEST(RenderTest, AllTextIsEscaped) {
  const std::string evil = "</script><img src=x onerror=\"alert('&')\">";
  Page page = small_page();
  Section& section = page.sections[0];
  for (std::string* text :
       {&page.title, &page.lead, &page.command, &section.title, &section.text, &section.figures[0].label,
        &section.figures[0].value, &section.figures[0].note, &section.charts[0].title, &section.charts[0].note,
        &section.charts[0].x.label, &section.charts[0].y.label, &section.charts[0].series[0].name,
        &section.tables[0].title, &section.tables[0].note, &section.tables[0].head[0],
        &section.tables[0].rows[0][0].text, &section.tables[0].rows[0][1].text}) {
    *text = evil;
  }
  section.charts[0].x.ticks = {{0, evil, evil}};
  const std::string html = render(page);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("onerror=\"")));
}

TEST(RenderTest, LegendsAreForSeveralSeries) {
  Page page = small_page();
  EXPECT_THAT(render(page), HasSubstr("<div class=\"legend\""));
  page.sections[0].charts[0].series.pop_back();
  EXPECT_THAT(render(page), Not(HasSubstr("<div class=\"legend\"")));
}

TEST(RenderTest, ChartsAreNumberedOverThePage) {
  Page page = small_page();
  page.sections.push_back(page.sections[0]);
  const std::string html = render(page);
  EXPECT_THAT(html, HasSubstr("id=\"chart-1\""));
  EXPECT_THAT(html, HasSubstr("id=\"chart-2\""));
}

TEST(RenderTest, WhatIsEmptySaysSoOrIsLeftOut) {
  Page page = small_page();
  page.sections[0].charts[0].series.clear();
  EXPECT_THAT(render(page), HasSubstr("No data"));
  const std::string html = render({.title = "Nothing"});
  EXPECT_THAT(html, HasSubstr("<h1>Nothing</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("<section>")));
  EXPECT_THAT(html, Not(HasSubstr("Made by")));
}

}  // namespace
}  // namespace cairn::page
