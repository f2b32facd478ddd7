#include "cairn/cli/replay_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ReplayRun run(const std::string& name) {
  ReplayRun run{.name = name};
  run.settings.manager.block_size = 64;
  run.settings.manager.device.blocks = 1000;
  run.settings.kv_bytes = 1000;
  sim::Report& report = run.report;
  report.counts = {.arrived = 4,
                   .completed = 4,
                   .input_tokens = 100,
                   .output_tokens = 8,
                   .reused_tokens = 25,
                   .computed_tokens = 75,
                   .saved_tokens = 25};
  report.cache = {.capacity = 1000, .peak_in_use = 500, .evicted = 7, .stored_blocks = 9};
  report.duration_ms = 3000;
  report.latencies.ttft_ms = {.count = 4, .mean = 50, .median = 40, .p99 = 90};
  report.latencies.itl_ms = {.count = 4, .mean = 5, .median = 5, .p99 = 5};
  report.span_s = 1;
  report.series = {
      {.begin_s = 0, .hit_ratio = 0.1, .ttft_ms = 40, .ttft_max_ms = 80, .blocks_in_use = 100, .blocks_resident = 400},
      {.begin_s = 1, .blocks_in_use = 0, .blocks_resident = 400},
      {.begin_s = 2, .hit_ratio = 0.3, .ttft_ms = 60, .ttft_max_ms = 90, .blocks_in_use = 200, .blocks_resident = 500}};
  report.ttft_histogram = {{40, 1}, {80, 0}, {160, 3}};
  report.eviction_histogram = {{1, 0}, {2, 0}, {4, 5}, {8, 2}};
  return run;
}

const page::Chart& chart(const page::Page& page, const std::string& title) {
  for (const page::Chart& chart : page.sections.at(0).charts) {
    if (chart.title == title) {
      return chart;
    }
  }
  ADD_FAILURE() << "there is no chart " << title;
  return page.sections.at(0).charts.at(0);
}

std::vector<std::string> names(const page::Chart& chart) {
  std::vector<std::string> out;
  for (const page::Series& series : chart.series) {
    out.push_back(series.name);
  }
  return out;
}

TEST(ReplayPageTest, HasThePlotsOfARun) {
  const std::vector<ReplayRun> runs = {run("")};
  const page::Page page = replay_page("chat.jsonl", runs, {}, "cairn replay chat.jsonl");
  EXPECT_EQ(page.title, "Replay of chat.jsonl");
  EXPECT_EQ(page.command, "cairn replay chat.jsonl");
  EXPECT_THAT(page.lead, HasSubstr("1,000 blocks of 64 tokens"));
  EXPECT_EQ(page.sections.at(0).figures.at(0).value, "25.00\u00A0%");

  const page::Chart& hits = chart(page, "Hit ratio over time");
  EXPECT_EQ(hits.series.at(0).points.at(2).y, 0.3);
  EXPECT_EQ(hits.series[0].points[1].y, std::nullopt) << "no request, no ratio: the line is broken";
  EXPECT_EQ(hits.x.to, 3);
  EXPECT_THAT(names(chart(page, "Time to first token over time")), ElementsAre("mean", "longest"));
  const page::Chart& use = chart(page, "Use of the cache");
  EXPECT_THAT(names(use), ElementsAre("in use", "resident"));
  EXPECT_EQ(use.series[0].points[0].y, 0.1);
  EXPECT_EQ(use.series[1].points[2].y, 0.5);
}

TEST(ReplayPageTest, DistributionsAreSharesFromTheFirstBarThatCounts) {
  const std::vector<ReplayRun> runs = {run("")};
  const page::Page page = replay_page("t", runs, {}, "");
  const std::vector<page::Point>& ttft = chart(page, "Times to first token").series.at(0).points;
  ASSERT_EQ(ttft.size(), 4U);
  EXPECT_EQ(ttft[0].x, 20);
  EXPECT_EQ(ttft[0].y, 0.25);
  EXPECT_EQ(ttft[2].x, 80);
  EXPECT_EQ(ttft[2].y, 0.75);
  EXPECT_EQ(ttft[3].x, 160);
  EXPECT_EQ(ttft[3].y, std::nullopt);
  const std::vector<page::Point>& ages = chart(page, "Age of evicted blocks").series.at(0).points;
  ASSERT_EQ(ages.size(), 3U);
  EXPECT_EQ(ages[0].x, 2);
  EXPECT_NEAR(*ages[0].y, 5.0 / 7, 1e-12);
}

TEST(ReplayPageTest, RunsAreDrawnOverOneAnother) {
  std::vector<ReplayRun> runs = {run("blocks=1000"), run("blocks=2000")};
  runs[1].report.counts.reused_tokens = 50;
  runs[1].report.latencies.ttft_ms.mean = 60;
  const Comparison comparison{
      .base = "blocks=1000",
      .other = "blocks=2000",
      .requests = 4,
      .differences = {{.measure = "hit ratio", .unit = "", .base = 0.25, .other = 0.5, .matters = true},
                      {.measure = "mean TTFT", .unit = "ms", .base = 50, .other = 60, .matters = true},
                      {.measure = "mean E2E", .unit = "ms", .base = 50, .other = 50.1, .matters = false}}};
  const page::Page page = replay_page("t", runs, {&comparison, 1}, "");
  for (const page::Chart& chart : page.sections.at(0).charts) {
    EXPECT_THAT(names(chart), ElementsAre("blocks=1000", "blocks=2000")) << chart.title;
  }
  const page::Table& both = page.sections[0].tables.at(0);
  EXPECT_THAT(both.head, ElementsAre("", "blocks=1000", "blocks=2000"));
  EXPECT_EQ(both.rows.at(0).at(2).look, page::Cell::Look::kBest) << "more hits are better";
  EXPECT_EQ(both.rows.at(1).at(1).look, page::Cell::Look::kBest) << "less time is better";
  EXPECT_EQ(both.rows.at(2).at(1).look, page::Cell::Look::kPlain) << "equal values have no best";

  const page::Table& differences = page.sections.at(1).tables.at(0);
  EXPECT_EQ(differences.rows.at(0).at(3).text, "+100.00\u00A0%");
  EXPECT_EQ(differences.rows[0][4].look, page::Cell::Look::kBest);
  EXPECT_EQ(differences.rows.at(1).at(4).look, page::Cell::Look::kWorse);
  EXPECT_EQ(differences.rows.at(2).at(4).text, "no");
}

TEST(ReplayPageTest, ARunThatFoundNothingSaysSo) {
  const std::vector<ReplayRun> runs(1);
  const page::Page page = replay_page("t", runs, {}, "");
  EXPECT_THAT(page.sections.at(0).tables.at(0).rows, IsEmpty());
  EXPECT_THAT(page::render(page), HasSubstr("No data"));
}

TEST(ReplayPageTest, ARunThatWasStoppedSaysSo) {
  std::vector<ReplayRun> runs = {run("")};
  runs[0].report.complete = false;
  EXPECT_THAT(replay_page("t", runs, {}, "").lead, HasSubstr("stopped before its end"));
}

TEST(ReplayPageTest, TimesFarApartAreOnALogarithmicAxis) {
  std::vector<ReplayRun> runs = {run("")};
  const std::string title = "Time to first token over time";
  const page::Page near = replay_page("t", runs, {}, "");
  EXPECT_EQ(chart(near, title).y.scale, page::Axis::Scale::kLinear);
  runs[0].report.latencies.ttft_ms.p99 = 4000;
  const page::Page far = replay_page("t", runs, {}, "");
  EXPECT_EQ(chart(far, title).y.scale, page::Axis::Scale::kLog);
}

// Three sizes of the host tier, not in order.
TEST(ReplayPageTest, PlotsHitsFirstTokensAndCostOverTheSizeOfATier) {
  std::vector<ReplayRun> runs = {run("host.blocks=2000"), run("host.blocks=0"), run("host.blocks=1000")};
  runs[0].settings.manager.host.blocks = 2000;
  runs[2].settings.manager.host.blocks = 1000;
  runs[2].report.counts.reused_tokens = 20;
  runs[0].report.busy_s = 3600;
  const page::Page page = replay_page("chat.jsonl", runs, {}, "");
  const page::Chart& hits = chart(page, "Hit ratio by size of the host memory");
  ASSERT_EQ(hits.series.at(0).points.size(), 3U);
  EXPECT_EQ(hits.series[0].points[0].x, 0);
  EXPECT_DOUBLE_EQ(hits.series[0].points[1].x, 0.064);  // GB
  EXPECT_DOUBLE_EQ(*hits.series[0].points[1].y, 0.2);
  EXPECT_THAT(names(chart(page, "Time to first token by size of the host memory")), ElementsAre("mean", "p99"));
  const page::Chart& cost = chart(page, "Cost by size of the host memory");
  // An hour of one GPU for 100 tokens, and little else.
  EXPECT_NEAR(*cost.series.at(0).points[2].y, 3 / 1e-4, 1);

  runs[1].settings.manager.device.blocks = 1;
  const page::Page two = replay_page("chat.jsonl", runs, {}, "");
  for (const page::Chart& each : two.sections.at(0).charts) {
    EXPECT_THAT(each.title, ::testing::Not(HasSubstr("by size"))) << "two tiers differ";
  }
}

TEST(ReplayPageTest, ShowsWhereTokensCameFromIfThereAreTiers) {
  std::vector<ReplayRun> runs = {run("")};
  runs[0].report.tiers = {{.level = CacheLevel::kG2, .capacity = 50, .bytes_written = 3'000'000'000}};
  runs[0].report.loaded_tokens = {10, 0};
  const page::Page page = replay_page("chat.jsonl", runs, {}, "");
  const std::vector<page::Table>& tables = page.sections.at(0).tables;
  ASSERT_EQ(tables.size(), 3U);
  EXPECT_THAT(tables[1].rows.at(0).at(2).text, HasSubstr("10 (10"));
  EXPECT_EQ(tables[2].rows.at(0).at(0).text, "G2");
}

}  // namespace
}  // namespace cairn::cli
