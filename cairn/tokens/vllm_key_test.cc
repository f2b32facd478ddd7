
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <vector>

#include "cairn/tokens/cbor_writer.h"
#include "cairn/tokens/engine_key.h"

namespace cairn {
namespace {

std::vector<Token> tokens_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::string first_block(const VllmExtras& extras) {
  return vllm_block_digest(vllm_none_hash(), tokens_from(0, 16), extras).to_hex();
}

constexpr std::string_view kFirst = "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749";
constexpr std::string_view kSecond = "9401c2b375d6eca6f066c4258df430e87e46f6abed1c7520be6e288507fc9c2c";

struct HexSink {
  std::string text;
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
      text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
    }
  }
};

template <typename Write>
std::string cbor(Write write) {
  HexSink sink;
  {
    internal::CborWriter<HexSink> writer(sink);
    write(writer);
  }
  return sink.text;
}

TEST(CborWriterTest, WritesTheShortestForms) {
  EXPECT_EQ(cbor([](auto& writer) {
              writer.array(3);
              writer.bytes(std::array<std::byte, 2>{});
              writer.array(4);
              for (const int token : {1, 24, 300, 70000}) {
                writer.integer(token);
              }
              writer.null();
            }),
            "834200008401181819012c1a00011170f6");
  EXPECT_EQ(cbor([](auto& writer) {
              writer.array(3);
              writer.bytes({});
              writer.array(1);
              writer.integer(1);
              writer.array(2);
              writer.array(2);
              writer.text("mm");
              writer.integer(-3);
              writer.text("s");
            }),
            "834081018282626d6d226173");
  EXPECT_EQ(cbor([](auto& writer) {
              for (const std::int64_t number :
                   {std::int64_t{23}, std::int64_t{255}, std::int64_t{256}, std::int64_t{65535}, std::int64_t{65536},
                    std::int64_t{0xffffffff}, std::int64_t{0x100000000}, std::numeric_limits<std::int64_t>::min()}) {
                writer.integer(number);
              }
            }),
            "1718ff19010019ffff1a000100001affffffff1b00000001000000003b7fffffffffffffff");
}

TEST(CborWriterTest, LongTextsPassThroughTheBuffer) {
  const std::string text(2000, 'a');
  std::string expected =
      "17"
      "7907d0";
  for (int i = 0; i < 2000; ++i) {
    expected += "61";
  }
  expected += "17";
  EXPECT_EQ(cbor([&](auto& writer) {
              writer.integer(23);
              writer.text(text);
              writer.integer(23);
            }),
            expected);
}

TEST(VllmKeyTest, ChainsTheRecordedDigests) {
  EXPECT_EQ(vllm_none_hash().to_hex(), "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
  std::vector<Token> tokens = tokens_from(0, 16);
  const std::vector<Token> next = tokens_from(1000, 16);
  tokens.insert(tokens.end(), next.begin(), next.end());
  tokens.push_back(5);
  std::vector<Digest> digests(2);
  ASSERT_EQ(*vllm_hash_blocks(tokens, {.block_size = 16}, std::nullopt, digests), 2U);
  EXPECT_EQ(digests[0].to_hex(), kFirst);
  EXPECT_EQ(digests[1].to_hex(), kSecond);
  EXPECT_EQ(vllm_event_hash(digests[0]), 2233398808101521225U);

  std::vector<Digest> continued(1);
  ASSERT_EQ(*vllm_hash_blocks(next, {.block_size = 16}, VllmParent{digests[0], 0}, continued), 1U);
  EXPECT_EQ(continued[0], digests[1]);
}

TEST(VllmKeyTest, ExtraKeysOfOlderEngines) {
  constexpr VllmExtras::Style plain = VllmExtras::Style::kPlain;
  EXPECT_EQ(first_block({.lora_name = "my-lora", .cache_salt = "salt-a", .style = plain}),
            "4fc4fc39296cf074eff1ed877b7768319eb9e9bc23ccb768b58fb7db095119cc");
  const VllmMmItem item{"mmhash", -3, 10};
  EXPECT_EQ(first_block({.mm_items = {&item, 1}, .style = plain}),
            "49cac96e2611296a5a1606b227b1a8386aad5eca90a1e4fcd1922154c4729001");
}

TEST(VllmKeyTest, ExtraKeysThatCarryTheirSource) {
  EXPECT_EQ(first_block({.lora_name = "alpha"}), "0bafbf87a438333e089a540049880c61678d52a808bc447b6c1d21acc5e88b4c");
  const VllmMmItem item{"img", 3, 1};
  EXPECT_EQ(first_block({.mm_items = {&item, 1}}), "276ae4ffc6dfd427fd76af7b7cc5b317d229999ee5dc2667f267975bb25c2d91");
  EXPECT_EQ(first_block({.cache_salt = "salt"}), "7c4f338bf4132118ae598f1bcb5c93be071e54994a593edd91b7feb744ba6ef8");
}

TEST(VllmKeyTest, EachBlockTakesTheItemsThatOverlapIt) {
  const std::vector<Token> tokens = tokens_from(0, 40);
  const VllmMmItem items[] = {{"a", 2, 3}, {"b", 6, 14}, {"c", 24, 8}};
  const VllmHashing hashing{.block_size = 8, .extras = {.lora_name = "l", .mm_items = items, .cache_salt = "s"}};
  std::vector<Digest> digests(5);
  ASSERT_EQ(*vllm_hash_blocks(tokens, hashing, std::nullopt, digests), 5U);

  const auto expect = [&](std::size_t block, std::vector<VllmMmItem> relative, std::string_view salt) {
    const Digest parent = block == 0 ? vllm_none_hash() : digests[block - 1];
    const VllmExtras extras{.lora_name = "l", .mm_items = relative, .cache_salt = salt};
    EXPECT_EQ(digests[block], vllm_block_digest(parent, std::span(tokens).subspan(block * 8, 8), extras))
        << "block " << block;
  };
  expect(0, {{"a", 2, 3}, {"b", 6, 14}}, "s");
  expect(1, {{"b", -2, 14}}, "");
  expect(2, {{"b", -10, 14}}, "");
  expect(3, {{"c", 0, 8}}, "");
  expect(4, {}, "");

  std::vector<Digest> tail(2);
  ASSERT_EQ(*vllm_hash_blocks(std::span(tokens).subspan(24), hashing, VllmParent{digests[2], 2}, tail), 2U);
  EXPECT_EQ(tail[0], digests[3]);
  EXPECT_EQ(tail[1], digests[4]);
}

TEST(VllmKeyTest, BadCallsWriteNothing) {
  const std::vector<Token> tokens = tokens_from(0, 8);
  std::vector<Digest> digests(1);
  const auto code = [&](const VllmHashing& hashing, std::optional<VllmParent> parent) {
    return vllm_hash_blocks(tokens, hashing, parent, digests).error().code;
  };
  EXPECT_EQ(code({}, std::nullopt), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.block_size = 4}, std::nullopt), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.block_size = 8}, VllmParent{{}, BlockKey::kMaxPosition}), ErrorCode::kOutOfRange);
  EXPECT_EQ(code({.block_size = 8}, VllmParent{{}, ~0U}), ErrorCode::kOutOfRange);
  const std::vector<std::vector<VllmMmItem>> bad = {
      {{"a", 0, 0}}, {{"a", -1, 4}}, {{"a", 0, 4}, {"b", 3, 1}}, {{"a", 4, 1}, {"b", 3, 1}}};
  for (const std::vector<VllmMmItem>& items : bad) {
    EXPECT_EQ(code({.block_size = 8, .extras = {.mm_items = items}}, std::nullopt), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(digests[0], Digest{});
}

TEST(VllmKeyTest, GivenDigestsBecomeKeys) {
  const KeySecret secret = KeySecret::random();
  const KeyHasher hasher = KeyHasher::make({.model = "m", .scheme = KeyScheme::kVllm}, secret);
  const std::vector<Digest> digests = {*Digest::from_hex(kFirst), *Digest::from_hex(kSecond)};
  std::vector<BlockKey> keys(2);
  ASSERT_EQ(*vllm_keys(hasher, std::nullopt, digests, keys), 2U);
  EXPECT_EQ(keys[0].position(), 0U);
  EXPECT_TRUE(keys[0].is_parent_of(keys[1]));

  EXPECT_EQ(*vllm_adopt(hasher, std::nullopt, digests[0].bytes, 0), keys[0]);
  EXPECT_EQ(*vllm_adopt(hasher, keys[0], digests[1].bytes, 1), keys[1]);
  EXPECT_NE(*vllm_adopt(hasher, keys[0], std::span(digests[1].bytes).last<16>(), 1), keys[1]);
  std::vector<BlockKey> tail(1);
  ASSERT_EQ(*vllm_keys(hasher, keys[0], std::span(digests).subspan(1), tail), 1U);
  EXPECT_EQ(tail[0], keys[1]);

  for (const Namespace& other : {Namespace{.model = "n", .scheme = KeyScheme::kVllm},
                                 Namespace{.tenant = "t", .model = "m", .scheme = KeyScheme::kVllm}}) {
    EXPECT_NE(*vllm_adopt(KeyHasher::make(other, secret), std::nullopt, digests[0].bytes, 0), keys[0]);
  }
}

// The key depends on the whole digest: changing any bit gives a key that shares only the position.
TEST(VllmKeyTest, DigestsThatShareAHalfHaveUnrelatedKeys) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kVllm});
  const Digest digest = *Digest::from_hex(kFirst);
  const BlockKey key = *vllm_adopt(hasher, std::nullopt, digest.bytes, 0);
  for (std::size_t bit = 0; bit < 256; ++bit) {
    Digest other = digest;
    other.bytes[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    const BlockKey changed = *vllm_adopt(hasher, std::nullopt, other.bytes, 0);
    const int differing =
        std::popcount(key.high_word() ^ changed.high_word()) + std::popcount(key.low_word() ^ changed.low_word());
    EXPECT_GT(differing, 20) << "bit " << bit;
    EXPECT_LT(differing, 98) << "bit " << bit;
  }
}

TEST(VllmKeyTest, RejectsDigestsThatFitNowhere) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kVllm});
  const std::array<std::byte, 33> bytes{};
  const BlockKey parent = *vllm_adopt(hasher, std::nullopt, std::span(bytes).first<32>(), 0);
  const auto code = [&](const std::optional<BlockKey>& after, std::size_t size, std::uint64_t position) {
    return vllm_adopt(hasher, after, std::span(bytes).first(size), position).error().code;
  };
  EXPECT_EQ(code(std::nullopt, 15, 0), ErrorCode::kInvalidArgument) << "too short to distinguish blocks";
  EXPECT_EQ(code(std::nullopt, 33, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(std::nullopt, 32, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(parent, 32, 2), ErrorCode::kInvalidArgument);
  const BlockKey last = BlockKey::make_checked(BlockKey::kMaxPosition, SequenceHash{1}, SequenceHash{1});
  EXPECT_EQ(code(last, 32, 1U << 24), ErrorCode::kOutOfRange);
  std::vector<BlockKey> keys(1);
  EXPECT_EQ(vllm_keys(hasher, last, std::vector<Digest>(1), keys).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(vllm_keys(hasher, std::nullopt, std::vector<Digest>(2), keys).error().code, ErrorCode::kInvalidArgument);
  for (const KeyHasher& other : {KeyHasher::dynamo(), KeyHasher::of_process()}) {
    EXPECT_EQ(vllm_keys(other, std::nullopt, std::vector<Digest>(1), keys).error().code,
              ErrorCode::kFailedPrecondition);
  }
}

TEST(RouterKeyTest, HashesAreTakenAsTheyAre) {
  const NamespaceId ns = Namespace{.model = "m", .scheme = KeyScheme::kRouter}.id();
  const BlockKey root = *adopt_hash(ns, std::nullopt, 5, 0);
  const BlockKey child = *adopt_hash(ns, root, 6, 1);
  EXPECT_EQ(router_hash_of(ns, root), 5U);
  EXPECT_EQ(router_hash_of(ns, child), 6U);
  EXPECT_TRUE(root.is_parent_of(child));
  EXPECT_EQ(adopt_hash(ns, root, 6, 2).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
