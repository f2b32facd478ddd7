#include "cairn/cli/hitrate_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/cli/text.h"

namespace cairn::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Look = page::Series::Look;

lab::Row row(const std::string& policy, const std::string& capacity, std::uint32_t blocks, std::uint64_t hits) {
  return {.trace = "t",
          .policy = policy,
          .capacity = capacity,
          .blocks = blocks,
          .counts = {.requests = 10,
                     .requests_hit = hits / 10,
                     .blocks = 100,
                     .blocks_hit = hits,
                     .tokens = 1000,
                     .tokens_hit = hits * 10,
                     .evicted = 2 * hits}};
}

// Capacities in an order that a user may have typed.
MeasuredTrace measured() {
  return {.name = "chat.jsonl",
          .requests = 10,
          .blocks = 100,
          .distinct = 1000,
          .block_size = 500,
          .kv_bytes = 1'000'000,
          .rows = {row("fifo", "20%", 200, 30), row("fifo", "1%", 10, 10), row("lru", "20%", 200, 40),
                   row("lru", "1%", 10, 20), row("adaptive", "20%", 200, 50), row("adaptive", "1%", 10, 15),
                   row("opt", "20%", 200, 60), row("opt", "1%", 10, 45), row("infinite", "20%", 200, 60),
                   row("infinite", "1%", 10, 60)}};
}

std::vector<std::string> titles(const page::Section& section) {
  std::vector<std::string> out;
  for (const page::Chart& chart : section.charts) {
    out.push_back(chart.title);
  }
  return out;
}

std::vector<std::string> names(const page::Chart& chart) {
  std::vector<std::string> out;
  for (const page::Series& series : chart.series) {
    out.push_back(series.name);
  }
  return out;
}

TEST(HitratePageTest, CurvesRiseByCapacityWithTheOnesToFollowFirst) {
  const page::Page page = hitrate_page({measured()}, "cairn hitrate chat.jsonl");
  EXPECT_EQ(page.command, "cairn hitrate chat.jsonl");
  ASSERT_EQ(page.sections.size(), 1U);
  const page::Chart& hits = page.sections[0].charts.at(0);
  EXPECT_THAT(names(hits), ElementsAre("adaptive", "lru", "fifo", "opt"));
  EXPECT_EQ(hits.series[0].points[0].x, 10);
  EXPECT_EQ(hits.series[0].points[0].y, 0.15);
  EXPECT_EQ(hits.series[0].points[1].x, 200);
  EXPECT_EQ(hits.series[0].points[1].y, 0.5);
  EXPECT_EQ(hits.series[3].look, Look::kBound);
  ASSERT_EQ(hits.marks.size(), 1U) << "the infinite cache is one line for all capacities";
  EXPECT_EQ(hits.marks[0].at, 0.6);
  EXPECT_EQ(hits.x.scale, page::Axis::Scale::kLog);
  EXPECT_EQ(hits.x.ticks.at(0).label, "1\u00A0%");
  EXPECT_EQ(hits.x.ticks.at(0).below, "5.0 GB") << "10 blocks of 500 tokens";
}

TEST(HitratePageTest, GainIsMeasuredAgainstLru) {
  const page::Page page = hitrate_page({measured()}, "");
  const page::Section& section = page.sections.at(0);
  EXPECT_THAT(titles(section),
              ElementsAre("Hit ratio over capacity", "Gain over LRU", "Bytes", "Requests", "Written to a lower tier"));
  const page::Chart& gain = section.charts[1];
  EXPECT_THAT(names(gain), ElementsAre("adaptive", "lru", "fifo"));
  EXPECT_NEAR(*gain.series[0].points[0].y, -0.05, 1e-12);
  EXPECT_NEAR(*gain.series[0].points[1].y, 0.1, 1e-12);
  EXPECT_NEAR(*gain.series[1].points[0].y, 0, 1e-12);
  EXPECT_TRUE(gain.marks.empty());
}

TEST(HitratePageTest, TheBestPolicyOfEachCapacityStandsOut) {
  const page::Page page = hitrate_page({measured()}, "");
  const page::Section& section = page.sections.at(0);
  ASSERT_EQ(section.figures.size(), 2U);
  EXPECT_EQ(section.figures[0].value, "20.00\u00A0%");
  EXPECT_THAT(section.figures[0].note, HasSubstr("lru"));
  EXPECT_EQ(section.figures[1].value, "50.00\u00A0%");
  EXPECT_THAT(section.figures[1].note, HasSubstr("adaptive"));
  std::vector<std::string> best;
  for (const auto& cells : section.tables.at(0).rows) {
    for (std::size_t i = 1; i < cells.size(); ++i) {
      if (cells[i].look == page::Cell::Look::kBest) {
        best.push_back(cells[0].text + " " + cells[i].text);
      }
    }
  }
  EXPECT_THAT(best, ElementsAre("adaptive 50.00\u00A0%", "lru 20.00\u00A0%"));
}

TEST(HitratePageTest, CapacitiesInBlocksAreNamedByBlocks) {
  const page::Page page = hitrate_page({{.name = "t",
                                         .distinct = 1000,
                                         .block_size = 500,
                                         .kv_bytes = 1'000'000,
                                         .rows = {row("fifo", "100", 100, 1), row("fifo", "200", 200, 2)}}},
                                       "");
  const page::Section& section = page.sections.at(0);
  EXPECT_THAT(titles(section), ElementsAre("Hit ratio over capacity", "Bytes", "Requests", "Written to a lower tier"));
  const page::Axis& axis = section.charts[0].x;
  EXPECT_EQ(axis.scale, page::Axis::Scale::kLinear);
  EXPECT_EQ(axis.label, "Capacity in blocks of 500 tokens");
  EXPECT_EQ(axis.ticks.at(1).label, "200");
  EXPECT_EQ(axis.ticks.at(1).below, "100.0 GB");
}

TEST(HitratePageTest, CapacitiesInBytesAreNamedByBytes) {
  const page::Page page = hitrate_page({{.name = "t", .distinct = 1000, .rows = {row("fifo", "5GB", 200, 1)}}}, "");
  const page::Axis& axis = page.sections.at(0).charts[0].x;
  EXPECT_EQ(axis.ticks.at(0).label, "5GB");
  EXPECT_EQ(axis.ticks.at(0).below, "20.00\u00A0%");
}

TEST(HitratePageTest, BoundsAloneAndNoRowsMakeAPageToo) {
  const page::Page bounds = hitrate_page({{.name = "t", .rows = {row("infinite", "5%", 50, 9)}}}, "");
  EXPECT_EQ(bounds.sections.at(0).figures.at(0).value, "9.00\u00A0%");
  EXPECT_FALSE(page::render(bounds).empty());
  EXPECT_TRUE(hitrate_page({{.name = "t"}}, "").sections.empty());
}

TEST(HitratePageTest, ManyPoliciesStandBackBehindTheOnesToFollow) {
  MeasuredTrace trace = measured();
  for (const char* policy : {"a", "b", "c"}) {
    trace.rows.push_back(row(policy, "20%", 200, 1));
    trace.rows.push_back(row(policy, "1%", 10, 1));
  }
  const page::Page page = hitrate_page({trace}, "");
  const page::Chart& hits = page.sections.at(0).charts.at(0);
  EXPECT_EQ(hits.series[0].look, Look::kLine);
  EXPECT_EQ(hits.series[1].look, Look::kLine);
  EXPECT_EQ(hits.series[2].look, Look::kThin);
}

TEST(CommandLineTest, CanBeGivenToAShellAgain) {
  const char* const words[] = {"/some/where/cairn", "hitrate", "a b.jsonl", "it's", "", "--capacity=1%,2%"};
  EXPECT_EQ(command_line(6, words), "cairn hitrate 'a b.jsonl' 'it'\\''s' '' --capacity=1%,2%");
}

}  // namespace
}  // namespace cairn::cli
