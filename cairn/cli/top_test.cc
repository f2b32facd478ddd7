#include "cairn/cli/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cairn::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string status_at(double uptime, int bytes, int asked, int host) {
  return R"({"worker_id":7,"uptime_seconds":)" + std::to_string(uptime) +
         R"(,"incident_count":1,"onboard":{"loads":2},"tiers":[
           {"level":"G2","block_bytes":1048576,"blocks":100,"free":25,"in_use":10,
            "reading":{"is_up":true,"reason":""},"writing":{"is_up":true,"reason":""}},
           {"level":"G3","block_bytes":1048576,"blocks":1000,"free":1000,"in_use":0,
            "reading":{"is_up":true,"reason":""},"writing":{"is_up":false,"reason":"disk full"}}],
           "links":[{"from":"G2","to":"G3","bytes":)" +
         std::to_string(bytes) +
         R"(,"bytes_per_second":2e9,"done":1234,"failed":1,"expired":1,"mismatched":0,"is_paused":true}],
           "tokens":{"total":{"asked":)" +
         std::to_string(asked) + R"(,"device":0,"loaded_host":)" + std::to_string(host) +
         R"(,"loaded_disk":0}},
           "incidents":[{"kind":"tier out","level":"G3","text":"disk full","seconds_ago":12}]})";
}

TEST(Top, ShowsTiersHitsLinksAndIncidents) {
  const std::vector<std::string> lines =
      top_lines({.status = status_at(12, 6'000'000, 300, 150),
                 .times = R"({"operations":[{"name":"cairn_load_seconds","labels":{},"count":5,"p50":0.002,"p99":1.5},
                                            {"name":"cairn_copy_seconds","labels":{"link":"G2-G3"},"count":9,"p50":3e-5,"p99":2}]})"},
                {.status = status_at(10, 2'000'000, 100, 100)}, 100, 50);
  EXPECT_THAT(lines[0], StartsWith("Cairn worker 7, up for 12 s, 1 incident, 2 loads in flight"));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("host"), HasSubstr("75 %"), HasSubstr("75.0 MiB of 100 MiB"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("disk"), HasSubstr("OUT: disk full"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("HITS"), HasSubstr("host 25.0 %"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("G2-G3"), HasSubstr("2.0 MB/s"), HasSubstr("2.0 GB/s"),
                                    HasSubstr("1,234"), HasSubstr("paused"))));
  EXPECT_THAT(lines, Contains(StartsWith("INCIDENT  12 s ago, tier out: disk full")));
  const auto copy = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("copy G2-G3"); });
  const auto load = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("load "); });
  ASSERT_NE(copy, lines.end());
  EXPECT_LT(copy, load) << "the slowest first";
}

TEST(Top, FitsTheScreen) {
  for (const std::size_t width : {1, 20, 40, 79, 300}) {
    for (const std::size_t height : {1, 5, 24}) {
      const std::vector<std::string> lines = top_lines({.status = status_at(12, 6, 3, 1)}, {}, width, height);
      EXPECT_LE(lines.size(), height);
      for (const std::string& line : lines) {
        const auto columns =
            std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
        EXPECT_LE(static_cast<std::size_t>(columns), width) << line;
      }
    }
  }
}

TEST(Top, AnAnswerThatIsNoStatusIsALine) {
  for (const char* const status :
       {"", "[]", "not json", "{\"tiers\":7,\"links\":{},\"incidents\":\"x\",\"onboard\":[]}"}) {
    const std::vector<std::string> lines = top_lines({.status = status, .times = "?"}, {.status = "null"}, 80, 24);
    EXPECT_THAT(lines, ::testing::Not(SizeIs(0)));
  }
  EXPECT_THAT(top_lines({.status = "[]"}, {}, 80, 24), ElementsAre(HasSubstr("not a status")));
}

TEST(Top, ATextOfTheServerCannotControlTheTerminal) {
  std::string status = status_at(12, 6, 3, 1);
  status.replace(status.find("\"disk full\",\"seconds"), 11, "\"\\u001b[2J\"");
  for (const std::string& line : top_lines({.status = status}, {}, 80, 50)) {
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace cairn::cli
