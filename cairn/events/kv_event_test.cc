#include "cairn/events/kv_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cairn/events/msgpack.h"

namespace cairn {
namespace {

using internal::MsgpackWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kB1 = 0xcb38e4d7fb2dca5c;
constexpr std::uint64_t kS2 = 0x44a2b2379d6d3c3d;

std::string unhex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// What vLLM 0.32's own classes encode and decode: Stored, Removed, Cleared of data parallel rank 0 at time 1.
const std::string kMaps = unhex(
    "93cb3ff00000000000009389a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cfcb38e4d7fb2dca5ccf44a2b237"
    "9d"
    "6d3c3db1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72"
    "61"
    "5f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f6964780084a474797065ac426c6f636b52656d6f766564ac"
    "62"
    "6c6f636b5f68617368657391cfcb38e4d7fb2dca5ca66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f63"
    "6b"
    "73436c656172656400");
// The same as arrays, of vLLM 0.22 and 0.23.
const std::string kArrays = unhex(
    "93cb3ff0000000000000939cab426c6f636b53746f72656492cfcb38e4d7fb2dca5ccf44a2b2379d6d3c3dc098010203040506070804c0a347"
    "50"
    "55c0c000c0c094ac426c6f636b52656d6f76656491cfcb38e4d7fb2dca5ca34750550091b0416c6c426c6f636b73436c656172656400");

KvEventBatch three_events() {
  return {.time = 1.0,
          .events = {{.data = KvStored{.hashes = {kB1, kS2}, .token_ids = {1, 2, 3, 4, 5, 6, 7, 8}, .block_size = 4},
                      .group = 0},
                     {.data = KvRemoved{{kB1}}, .group = 0},
                     {.data = KvCleared{}}},
          .dp_rank = 0};
}

TEST(KvEventTest, WritesTheBytesOfVllm) {
  std::string out;
  append_vllm(three_events(), out);
  EXPECT_EQ(out, kMaps);
}

TEST(KvEventTest, ReadsMapsAndArrays) {
  EXPECT_EQ(*decode_kv_events(kMaps), three_events());
  EXPECT_EQ(*decode_kv_events(kArrays), three_events());
}

TEST(KvEventTest, EveryFieldComesBack) {
  std::string extra;
  MsgpackWriter writer(extra);
  writer.array(1);
  writer.text("salt");
  const KvEventBatch batch{.time = 1.5,
                           .events = {{.data = KvStored{.hashes = {1, 2},
                                                        .parent = 9,
                                                        .token_ids = {1, 70'000, 3, 4'000'000'000},
                                                        .block_size = 2,
                                                        .lora_id = -3,
                                                        .lora_name = "adapter",
                                                        .extra_keys = {extra, "\xc0"},
                                                        .attention = "full_attention",
                                                        .window = 4096},
                                       .tier = CacheLevel::kG3,
                                       .group = 2},
                                      {.data = KvRemoved{{5}}, .tier = CacheLevel::kG2}},
                           .dp_rank = {}};
  std::string out;
  append_vllm(batch, out);
  EXPECT_EQ(*decode_kv_events(out), batch);
}

// A batch of one event that `write` writes.
template <typename Write>
Result<KvEventBatch> decoded(Write write) {
  std::string out;
  MsgpackWriter writer(out);
  writer.array(3);
  writer.real(1.0);
  writer.array(1);
  write(writer);
  writer.nil();
  return decode_kv_events(out);
}

TEST(KvEventTest, ReadsHashesInAnyForm) {
  const KvEventBatch batch = *decoded([](MsgpackWriter& writer) {
    writer.map(3);
    writer.text("type");
    writer.text("BlockRemoved");
    writer.text("block_hashes");
    writer.array(3);
    writer.signed_number(-2);                                                         // SGLang
    writer.raw(std::string("\xc4\x0a\x09\x09\x00\x00\x00\x00\x00\x00\x01\x02", 12));  // vLLM, with bytes for hashes
    writer.unsigned_number(7);
    writer.text("medium");
    writer.text("CPU_PINNED");
  });
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.events[0].tier, CacheLevel::kG2);
  EXPECT_THAT(std::get<KvRemoved>(batch.events[0].data).hashes, ElementsAre(0xfffffffffffffffe, 0x102, 7));
}

TEST(KvEventTest, ReadsPairsOfTokens) {
  const KvEventBatch batch = *decoded([](MsgpackWriter& writer) {
    writer.array(7);
    writer.text("BlockStored");
    writer.array(1);
    writer.unsigned_number(5);
    writer.nil();
    writer.array(2);
    for (const std::uint64_t token : {10, 11}) {
      writer.array(2);
      writer.unsigned_number(token);
      writer.unsigned_number(token + 1);
    }
    writer.unsigned_number(2);
    writer.nil();
    writer.text("GPU");
  });
  EXPECT_THAT(std::get<KvStored>(batch.events.at(0).data).token_ids, ElementsAre(10, 11));
}

TEST(KvEventTest, WhatIsUnknownOrElsewhereIsLeftOutAndCounted) {
  const auto event = [](const char* type, const char* field, const char* value) {
    return *decoded([&](MsgpackWriter& writer) {
      writer.map(3);
      writer.text("type");
      writer.text(type);
      writer.text("block_hashes");
      writer.array(1);
      writer.unsigned_number(1);
      writer.text(field);
      writer.text(value);
    });
  };
  EXPECT_EQ(event("BlockRemoved", "medium", "GPU").ignored, 0U);
  EXPECT_EQ(event("BlockRemoved", "a new field", "x").events.size(), 1U);
  for (const KvEventBatch& batch :
       {event("BlockRemoved", "medium", "TAPE"), event("BlockRemoved", "locality", "REMOTE"),
        event("BlockMoved", "medium", "GPU")}) {
    EXPECT_EQ(batch.ignored, 1U);
    EXPECT_EQ(batch.events.size(), 0U);
  }
}

TEST(KvEventTest, TokensThatDoNotFitTheBlocksAreUnknown) {
  std::string out;
  append_vllm({.events = {{.data = KvStored{.hashes = {1, 2}, .token_ids = {1, 2, 3}, .block_size = 2}}}}, out);
  const KvEventBatch batch = *decode_kv_events(out);
  EXPECT_TRUE(std::get<KvStored>(batch.events.at(0).data).token_ids.empty());
}

TEST(KvEventTest, WrongBytesAreRefused) {
  for (std::size_t size = 0; size < kMaps.size(); ++size) {
    EXPECT_FALSE(decode_kv_events(std::string_view(kMaps).substr(0, size))) << size;
  }
  EXPECT_THAT(decode_kv_events("{}").error().message, HasSubstr("is not [time, [event, ...], rank]"));
  EXPECT_THAT(decode_kv_events(kMaps + "x").error().message, HasSubstr("does not end"));
  EXPECT_THAT(decoded([](MsgpackWriter& writer) { writer.text("BlockStored"); }).error().message,
              HasSubstr("event 0 of 1"));
}

// --- TensorRT-LLM ---

void write_trt_block(MsgpackWriter& writer, std::uint64_t hash, std::uint64_t level, const char* salt) {
  writer.map(5);
  writer.text("type");
  writer.text("stored_block");
  writer.text("block_hash");
  writer.unsigned_number(hash);
  writer.text("cache_level");
  writer.unsigned_number(level);
  writer.text("cache_salt");
  if (salt != nullptr) {
    writer.text(salt);
  } else {
    writer.nil();
  }
  writer.text("tokens");
  writer.array(2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    writer.map(3);
    writer.text("type");
    writer.text("unique_token");
    writer.text("token_id");
    writer.unsigned_number(10 * hash + i);
    writer.text("token_extra_id");
    writer.unsigned_number(0);
  }
}

TEST(KvEventTest, ReadsStoredOfTensorRtLlm) {
  const KvEventBatch batch = *decoded([](MsgpackWriter& writer) {
    writer.map(3);
    writer.text("event_id");
    writer.unsigned_number(4);
    writer.text("data");
    writer.map(3);
    writer.text("type");
    writer.text("stored");
    writer.text("parent_hash");
    writer.unsigned_number(7);
    writer.text("blocks");
    writer.array(3);
    write_trt_block(writer, 1, 0, "tenant");
    write_trt_block(writer, 2, 0, "tenant");
    write_trt_block(writer, 3, 1, "tenant");
    writer.text("attention_dp_rank");
    writer.unsigned_number(3);
  });
  EXPECT_EQ(batch.dp_rank, 3U);
  ASSERT_EQ(batch.events.size(), 2U);
  const KvStored first{
      .hashes = {1, 2}, .parent = 7, .token_ids = {10, 11, 20, 21}, .block_size = 2, .cache_salt = "tenant"};
  const KvStored second{.hashes = {3}, .parent = 2, .token_ids = {30, 31}, .block_size = 2, .cache_salt = "tenant"};
  EXPECT_EQ(batch.events[0], (KvEvent{.data = first}));
  EXPECT_EQ(batch.events[1], (KvEvent{.data = second, .tier = CacheLevel::kG2}));
}

TEST(KvEventTest, ABlockOfTensorRtLlmMoves) {
  const KvEventBatch batch = *decoded([](MsgpackWriter& writer) {
    writer.map(1);
    writer.text("data");
    writer.map(3);
    writer.text("type");
    writer.text("updated");
    writer.text("block_hash");
    writer.unsigned_number(5);
    writer.text("cache_level");
    writer.map(3);
    writer.text("type");
    writer.text("event_diff");
    writer.text("new_value");
    writer.unsigned_number(1);
    writer.text("old_value");
    writer.unsigned_number(0);
  });
  EXPECT_THAT(batch.events, ElementsAre(KvEvent{.data = KvStored{.hashes = {5}}, .tier = CacheLevel::kG2},
                                        KvEvent{.data = KvRemoved{{5}}, .tier = CacheLevel::kG1}));
}

// --- Dynamo ---

TEST(KvEventTest, WritesRouterEventsOfDynamo) {
  std::string out;
  const KvStored stored{.hashes = {1, 3}, .token_ids = {1, 2, 3, 4, 5, 6, 7, 8}, .block_size = 4};
  append_router_json({.worker_id = 7, .event_id = 3}, {.data = stored}, local_hashes(stored, ""), out);
  append_router_json({.worker_id = 7, .event_id = 4, .dp_rank = 1}, {.data = KvRemoved{{1}}, .tier = CacheLevel::kG2},
                     {}, out);
  append_router_json({.event_id = 5}, {.data = KvCleared{}}, {}, out);
  EXPECT_EQ(
      out,
      R"({"worker_id":7,"storage_tier":"device","event":{"event_id":3,"data":{"stored":{"parent_hash":null,)"
      R"("start_position":null,"blocks":[{"block_hash":1,"tokens_hash":14643705804678351452,"mm_extra_info":null},)"
      R"({"block_hash":3,"tokens_hash":16777012769546811212,"mm_extra_info":null}]}},"dp_rank":0}})"
      "\n"
      R"({"worker_id":7,"storage_tier":"host_pinned","event":{"event_id":4,"data":{"removed":{"block_hashes":[1]}},)"
      R"("dp_rank":1}})"
      "\n"
      R"({"worker_id":0,"storage_tier":"device","event":{"event_id":5,"data":"cleared","dp_rank":0}})"
      "\n");
}

TEST(KvEventTest, SaltsAndItemsAreInTheHashesOfRouters) {
  const std::string image(64, 'a');
  std::string first;
  MsgpackWriter writer(first);
  writer.array(3);
  writer.text("adapter");
  writer.array(2);
  writer.text(image);
  writer.signed_number(-3);
  writer.text("dynamo-cache-salt:tenant");
  const KvStored stored{.hashes = {1, 2},
                        .token_ids = {1, 2, 3, 4},
                        .block_size = 2,
                        .lora_name = "adapter",
                        .extra_keys = {first, "\xc0"}};
  EXPECT_EQ(salt_of(stored), "tenant");
  EXPECT_TRUE(has_items(stored, 0));
  EXPECT_FALSE(has_items(stored, 1));
  std::vector<BlockHash> expected(2);
  ASSERT_TRUE(router_hashes(stored.token_ids, {.block_size = 2, .seed = salt_hash("tenant", "adapter")}, expected,
                            std::vector<std::vector<std::uint64_t>>{{0xaaaaaaaaaaaaaaaa}}));
  EXPECT_EQ(local_hashes(stored, "tenant"), expected);
  EXPECT_NE(local_hashes(stored, ""), expected);
}

}  // namespace
}  // namespace cairn
