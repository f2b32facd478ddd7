#include "cairn/tokens/engine_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace cairn {
namespace {

std::vector<Token> two_pages() {
  std::vector<Token> tokens(32);
  std::iota(tokens.begin(), tokens.begin() + 16, 0);
  std::iota(tokens.begin() + 16, tokens.end(), 1000);
  return tokens;
}

constexpr std::string_view kFirst = "5d85718ec594b982c252d0279e5966ffca33a5eaf2a455038d3ab331fde70cea";
constexpr std::string_view kSecond = "b9d59c816442112f395c154fa223ca1c216392e97585dae13d188b71ba6cf109";

TEST(SglangKeyTest, ChainsTheRecordedDigests) {
  const std::vector<Token> tokens = two_pages();
  std::vector<Digest> digests(2);
  ASSERT_EQ(*sglang_hash_pages(tokens, 16, std::nullopt, digests), 2U);
  EXPECT_EQ(digests[0].to_hex(), kFirst);
  EXPECT_EQ(digests[1].to_hex(), kSecond);
  EXPECT_EQ(sglang_event_hash(digests[0]), 6738917275443968386);
  EXPECT_LT(sglang_event_hash(digests[1]), 0);

  std::vector<Digest> continued(1);
  ASSERT_EQ(*sglang_hash_pages(std::span(tokens).subspan(16), 16, digests[0], continued), 1U);
  EXPECT_EQ(continued[0], digests[1]);
}

TEST(SglangKeyTest, TheStorageSeedStandsBeforeTheFirstPage) {
  const std::optional<Digest> seed = sglang_storage_seed("lora-a", "salt-b");
  EXPECT_EQ(seed->to_hex(), "32f6f70b5d28583188c7ecce05eb9097d80e66ccd5d54832f66d2876e749fcf5");
  std::vector<Digest> digests(2);
  ASSERT_TRUE(sglang_hash_pages(two_pages(), 16, seed, digests));
  EXPECT_EQ(digests[0].to_hex(), "9fa46b740b72ef9ec39916e0194219d995c6a68c09b72d78900de4e0635fac0f");
  EXPECT_EQ(sglang_storage_seed(std::nullopt, "salt-b")->to_hex(),
            "4da32e1ebae3bf7d84b6933278ded23d8a6ab19edc0aa4c83610903d66c44667");
  EXPECT_EQ(sglang_storage_seed(std::nullopt, std::nullopt), std::nullopt);
  EXPECT_NE(sglang_storage_seed("", std::nullopt), sglang_storage_seed(std::nullopt, ""));
}

TEST(SglangKeyTest, GivenDigestsBecomeKeys) {
  const KeySecret secret = KeySecret::random();
  const KeyHasher hasher = KeyHasher::make({.model = "m", .scheme = KeyScheme::kSglang}, secret);
  const std::vector<Digest> digests = {*Digest::from_hex(kFirst), *Digest::from_hex(kSecond)};
  std::vector<BlockKey> keys(2);
  ASSERT_EQ(*sglang_keys(hasher, std::nullopt, digests, keys), 2U);
  EXPECT_TRUE(keys[0].is_parent_of(keys[1]));
  EXPECT_EQ(*sglang_adopt(hasher, std::nullopt, digests[0].bytes, 0), keys[0]);
  EXPECT_EQ(*sglang_adopt(hasher, keys[0], digests[1].bytes, 1), keys[1]);
  const KeyHasher vllm = KeyHasher::make({.model = "m", .scheme = KeyScheme::kVllm}, secret);
  EXPECT_NE(*vllm_adopt(vllm, std::nullopt, digests[0].bytes, 0), keys[0]) << "the scheme is part of the keys";
  EXPECT_FALSE(sglang_keys(vllm, std::nullopt, digests, keys));
}

TEST(SglangKeyTest, BadCallsWriteNothing) {
  std::vector<Digest> digests(1);
  EXPECT_EQ(sglang_hash_pages(two_pages(), 0, std::nullopt, digests).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(sglang_hash_pages(two_pages(), 16, std::nullopt, digests).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(digests[0], Digest{});
  const std::array<std::byte, 7> bytes{};
  EXPECT_EQ(sglang_adopt(KeyHasher::make({.scheme = KeyScheme::kSglang}), std::nullopt, bytes, 0).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
