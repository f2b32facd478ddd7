#include "cairn/events/event.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

std::string line(const Event& event) {
  std::string out;
  append_json_line(event, out);
  return out;
}

const BlockKey kRoot = BlockKey::make_checked(0, SequenceHash{11}, SequenceHash{0});
const BlockKey kChild = BlockKey::make_checked(1, SequenceHash{0xffff'ffff'ffff'ffff}, SequenceHash{11});
const BlockKey kDeep = BlockKey::make_checked(70'000, SequenceHash{13}, SequenceHash{14});

TEST(EventJsonTest, StoredFromTheRoot) {
  EXPECT_EQ(
      line({.sequence = 7,
            .tier = CacheLevel::kG1,
            .data = Stored{.parent = std::nullopt,
                           .blocks = {{kRoot, BlockHash{12}}, {kChild, BlockHash{0}}},
                           .token_ids = {}}}),
      R"({"event_id":7,"tier":"G1","data":{"stored":{"parent_hash":null,"blocks":[)"
      R"({"block_hash":11,"tokens_hash":12,"position":0},)"
      R"({"block_hash":18446744073709551615,"tokens_hash":0,"position":1}]}},"worker_id":0,"dp_rank":0,"group_idx":0})"
      "\n");
}

TEST(EventJsonTest, StoredWithParentAndTokenIds) {
  EXPECT_EQ(
      line({.sequence = 1,
            .tier = CacheLevel::kG4,
            .data = Stored{.parent = SequenceHash{14}, .blocks = {{kDeep, BlockHash{5}}}, .token_ids = {0, 9}}}),
      R"({"event_id":1,"tier":"G4","data":{"stored":{"parent_hash":14,"blocks":[)"
      R"({"block_hash":13,"tokens_hash":5,"position":70000}],"token_ids":[0,9]}},"worker_id":0,"dp_rank":0,"group_idx":0})"
      "\n");
}

TEST(EventJsonTest, Removed) {
  EXPECT_EQ(
      line({.sequence = 2, .tier = CacheLevel::kG2, .data = Removed{{kRoot, kDeep}}}),
      R"({"event_id":2,"tier":"G2","data":{"removed":{"block_hashes":[11,13]}},"worker_id":0,"dp_rank":0,"group_idx":0})"
      "\n");
}

TEST(EventJsonTest, ClearedIsAppended) {
  std::string out = "before ";
  append_json_line({.sequence = 3, .tier = CacheLevel::kG3, .data = Cleared{}}, out);
  EXPECT_EQ(
      out,
      "before {\"event_id\":3,\"tier\":\"G3\",\"data\":\"cleared\",\"worker_id\":0,\"dp_rank\":0,\"group_idx\":0}\n");
}

TEST(EventJsonTest, Invalidated) {
  EXPECT_EQ(line({.sequence = 6, .tier = CacheLevel::kG3, .data = Invalidated{.weights_generation = 8}}),
            "{\"event_id\":6,\"tier\":\"G3\",\"data\":{\"invalidated\":{\"weights_generation\":8}},\"worker_id\":0,"
            "\"dp_rank\":0,\"group_idx\":0}\n");
}

TEST(EventJsonTest, SuspendedAndResumed) {
  EXPECT_EQ(line({.sequence = 4, .tier = CacheLevel::kG3, .data = Suspended{}}),
            "{\"event_id\":4,\"tier\":\"G3\",\"data\":\"suspended\",\"worker_id\":0,\"dp_rank\":0,\"group_idx\":0}\n");
  EXPECT_EQ(line({.sequence = 5, .tier = CacheLevel::kG4, .data = Resumed{}}),
            "{\"event_id\":5,\"tier\":\"G4\",\"data\":\"resumed\",\"worker_id\":0,\"dp_rank\":0,\"group_idx\":0}\n");
}

TEST(EventJsonTest, SourceAndGroup) {
  EXPECT_EQ(line({.sequence = 3,
                  .tier = CacheLevel::kG2,
                  .data = Cleared{},
                  .source = {.worker_id = 0xffff'ffff'ffff'ffff, .dp_rank = 7},
                  .group = 2}),
            R"({"event_id":3,"tier":"G2","data":"cleared","worker_id":18446744073709551615,"dp_rank":7,"group_idx":2})"
            "\n");
}

}  // namespace
}  // namespace cairn
