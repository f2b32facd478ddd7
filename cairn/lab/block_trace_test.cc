#include "cairn/lab/block_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

namespace cairn::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string write_file(const std::string& name, const std::string& text) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(TraceTest, NumbersBlocksByTheirPrefix) {
  const std::string path = write_file("numbers.jsonl",
                                      "{\"hash_ids\":[1,2,3],\"input_length\":1100}\n"
                                      "\n"
                                      "{\"hash_ids\":[1,2,4]}\r\n"
                                      "{\"hash_ids\":[2,3]}");
  const Result<Trace> trace = Trace::load(path, 512);
  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->requests().size(), 3U);
  EXPECT_THAT(trace->blocks_of(trace->requests()[0]), ElementsAre(0U, 1U, 2U));
  EXPECT_THAT(trace->blocks_of(trace->requests()[1]), ElementsAre(0U, 1U, 3U));
  EXPECT_THAT(trace->blocks_of(trace->requests()[2]), ElementsAre(4U, 5U));
  EXPECT_EQ(trace->unique_blocks(), 6U);
  EXPECT_EQ(trace->parent(0), Trace::kNoBlock);
  EXPECT_EQ(trace->parent(3), 1U);
  EXPECT_TRUE(trace->key(1).is_parent_of(trace->key(3)));
  EXPECT_EQ(trace->find(trace->key(5)), 5U);
  EXPECT_EQ(trace->find(BlockKey()), Trace::kNoBlock);
  EXPECT_EQ(trace->requests()[0].tokens, 1'100U);
  EXPECT_EQ(trace->requests()[1].tokens, 1'536U);
  EXPECT_EQ(trace->tokens_in(trace->requests()[0], 2), 1'024U);
  EXPECT_EQ(trace->tokens_in(trace->requests()[0], 3), 1'100U);
}

TEST(TraceTest, CountsAndNamesBadRows) {
  const Result<Trace> trace =
      Trace::load(write_file("bad.jsonl", "{\"hash_ids\":[1]}\nnonsense\n{\"hash_ids\":[]}\n"), 512);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->requests().size(), 1U);
  EXPECT_EQ(trace->bad_rows(), 2U);
  EXPECT_EQ(trace->first_bad_row(), "line 2: no JSON object at column 1");
}

TEST(TraceTest, FailsWhereThereIsNothingToRead) {
  EXPECT_THAT(Trace::load("/no/such/file", 512).error().message, HasSubstr("/no/such/file"));
  EXPECT_THAT(Trace::load(write_file("none.jsonl", "x\n"), 512).error().message, HasSubstr("line 1"));
  EXPECT_FALSE(Trace::load(write_file("empty.jsonl", ""), 512));
  EXPECT_FALSE(Trace::load(write_file("good.jsonl", "{\"hash_ids\":[1]}"), 0));
}

TEST(TraceTest, ReadsGzipAndNoticesThatItIsCut) {
  const std::string path = ::testing::TempDir() + "trace.jsonl.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  for (int i = 0; i < 20'000; ++i) {
    gzprintf(file, "{\"hash_ids\":[%d,%d]}\n", i, i * 7919 % 1000);
  }
  gzclose(file);
  const Result<Trace> trace = Trace::load(path, 512);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->requests().size(), 20'000U);

  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const Result<Trace> cut = Trace::load(write_file("cut.jsonl.gz", bytes.substr(0, bytes.size() / 2)), 512);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace cairn::lab
