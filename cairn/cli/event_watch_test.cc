#include "cairn/cli/event_watch.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace cairn::cli {
namespace {

using Kind = ReceivedEvents::Kind;

std::string printed(const ReceivedEvents& received, bool json) {
  std::ostringstream out;
  print_events(received, json, out);
  return out.str();
}

const ReceivedEvents kBatch{.sequence = 12,
                            .batch = {.time = 3'661.25,
                                      .events = {{.data = KvStored{.hashes = {1, 2, 3, 4, 5},
                                                                   .parent = 171,
                                                                   .token_ids = {1, 2, 3, 4, 5},
                                                                   .block_size = 1}},
                                                 {.data = KvRemoved{{255}}, .tier = CacheLevel::kG2},
                                                 {.data = KvCleared{}}},
                                      .dp_rank = 3}};

TEST(EventsCommandTest, PrintsBatchesForPeople) {
  EXPECT_EQ(printed(kBatch, false),
            "12  01:01:01.250  rank 3\n"
            "  stored   GPU  5 blocks  0000000000000001 0000000000000002 0000000000000003 0000000000000004 and 1 more"
            "  after 00000000000000ab  5 tokens\n"
            "  removed  CPU  1 block   00000000000000ff\n"
            "  cleared\n");
  EXPECT_EQ(printed({.kind = Kind::kLost, .sequence = 7}, false), "7  lost: batches from number 7 on cannot be had\n");
}

TEST(EventsCommandTest, PrintsOneLineOfJsonForEachEvent) {
  EXPECT_EQ(
      printed(kBatch, true),
      R"({"sequence":12,"time":3661.25,"dp_rank":3,"event":"stored","medium":"GPU","block_hashes":[1,2,3,4,5],)"
      R"("parent_block_hash":171,"token_ids":[1,2,3,4,5],"block_size":1,"group_idx":0})"
      "\n"
      R"({"sequence":12,"time":3661.25,"dp_rank":3,"event":"removed","medium":"CPU","block_hashes":[255],"group_idx":0})"
      "\n"
      R"({"sequence":12,"time":3661.25,"dp_rank":3,"event":"cleared","group_idx":0})"
      "\n");
  EXPECT_EQ(printed({.kind = Kind::kInvalid, .sequence = 7, .text = "cut off"}, true),
            "{\"sequence\":7,\"report\":\"invalid\",\"reason\":\"cut off\"}\n");
  EXPECT_EQ(printed({.sequence = 7, .text = "{\"worker_id\":1}\n"}, true), "{\"worker_id\":1}\n");
}

TEST(EventsCommandTest, AWrongEndpointIsAnError) {
  std::ostringstream out;
  const std::atomic<bool> stop{false};
  const Status status = run_events({.stream = {.endpoint = "nonsense"}}, stop, out);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("cannot connect to 'nonsense'"), std::string::npos);
}

}  // namespace
}  // namespace cairn::cli
