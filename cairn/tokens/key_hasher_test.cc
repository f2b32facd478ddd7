#include "cairn/tokens/key_hasher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "cairn/hash/cmac.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/keyed_keys.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {
namespace {

using internal::AesBlock;

const KeySecret kSecret = *KeySecret::from_hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
const Namespace kSpace{.tenant = "acme", .model = "llama"};

std::vector<Token> tokens_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Hashed {
  std::vector<BlockKey> keys;
  std::vector<BlockHash> blocks;
};

Hashed hash_all(const KeyHasher& hasher, std::span<const Token> tokens, std::uint32_t block_size = 16,
                const std::optional<BlockKey>& parent = std::nullopt, std::span<const MmRun> runs = {}) {
  Hashed hashed{std::vector<BlockKey>(tokens.size() / block_size), std::vector<BlockHash>(tokens.size() / block_size)};
  EXPECT_TRUE(hash_blocks(tokens, block_size, hasher, parent, hashed.keys, hashed.blocks, runs));
  return hashed;
}

BlockKey first_key(const KeyHasher& hasher) { return hash_all(hasher, tokens_from(1, 16)).keys[0]; }

void append(std::vector<std::byte>& bytes, const void* data, std::size_t size) {
  bytes.insert(bytes.end(), static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + size);
}

// The scheme as key_hasher.h describes it, with OpenSSL's AES, one block at a time.
class Reference {
 public:
  explicit Reference(const Namespace& space) : keys_(kSecret, space, internal::cmac_kernels().back()) {}

  [[nodiscard]] AesBlock root(const RequestSalt& request) const {
    std::vector<std::byte> message;
    for (const std::string_view text : {request.salt, request.lora_name}) {
      const std::uint64_t size = text.size();
      append(message, &size, sizeof(size));
      append(message, text.data(), text.size());
    }
    AesBlock tag = keys_.root.mac(message);
    tag.bytes[7] |= std::byte{0xC0};
    return tag;
  }
  [[nodiscard]] BlockKey next(const std::optional<BlockKey>& parent, const RequestSalt& request,
                              std::span<const std::byte> content, bool framed) const {
    const AesBlock leaf = (framed ? keys_.frames : keys_.leaf).mac(content);
    std::vector<std::byte> message;
    append(message, &leaf, sizeof(leaf));
    if (parent) {
      const std::uint64_t words[2] = {parent->high_word(), parent->low_word()};
      append(message, words, sizeof(words));
    } else {
      const AesBlock begin = root(request);
      append(message, &begin, sizeof(begin));
    }
    const AesBlock tag = keys_.chain.mac(message);
    std::uint64_t words[2];
    std::memcpy(words, &tag, sizeof(words));
    return parent ? BlockKey::make_checked(parent->position() + 1, SequenceHash{words[0]}, parent->sequence_hash())
                  : BlockKey::wide_root(SequenceHash{words[0]}, words[1]);
  }

 private:
  internal::KeyedKeys keys_;
};

RC_GTEST_PROP(KeyHasherProperty, KeysAreAsDescribed, (std::string salt, std::string lora_name, std::uint32_t first)) {
  const auto block_size = *rc::gen::element<std::uint32_t>(1, 2, 3, 4, 5, 8, 16, 17, 32, 64);
  const auto blocks = *rc::gen::inRange<std::size_t>(0, 40);
  const auto start = *rc::gen::element<std::uint32_t>(0, 1, 250, 255, 256, 65530, 65535, 65536);
  const std::vector<Token> tokens = tokens_from(first, blocks * block_size + first % block_size);
  const RequestSalt request{.salt = salt, .lora_name = lora_name};
  std::optional<BlockKey> last;
  if (start > 0) {
    last = BlockKey::make_checked(start - 1, SequenceHash{first * 31ULL}, SequenceHash{first + 1ULL});
  }
  const Hashed hashed = hash_all(KeyHasher::make(kSpace, kSecret).with(request), tokens, block_size, last);
  const Reference reference(kSpace);
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto content = std::as_bytes(std::span(tokens).subspan(i * block_size, block_size));
    last = reference.next(last, request, content, false);
    RC_ASSERT(hashed.keys[i] == *last);
  }
}

TEST(KeyHasherTest, BlocksUnderRunsAreHashedInFramesWithAKeyOfTheirOwn) {
  const std::vector<Token> tokens = tokens_from(100, 24);
  const MmRun run{.offset = 10, .length = 3, .mm_hash = 0xAA};
  const Hashed hashed = hash_all(KeyHasher::make(kSpace, kSecret), tokens, 8, std::nullopt, {&run, 1});
  std::vector<std::byte> frames;
  for (std::uint64_t i = 8; i < 16; ++i) {
    const bool covered = i >= 10 && i < 13;
    const auto kind = static_cast<std::uint8_t>(covered);
    const Token id = covered ? static_cast<Token>(i - 10) : tokens[i];
    const std::uint64_t item = covered ? 0xAA : 0;
    append(frames, &kind, 1);
    append(frames, &id, 4);
    append(frames, &item, 8);
  }
  const Reference reference(kSpace);
  const auto plain = [&](std::size_t block) { return std::as_bytes(std::span(tokens).subspan(8 * block, 8)); };
  const BlockKey first = reference.next(std::nullopt, {}, plain(0), false);
  const BlockKey second = reference.next(first, {}, frames, true);
  EXPECT_EQ(hashed.keys, (std::vector<BlockKey>{first, second, reference.next(second, {}, plain(2), false)}));
}

// Recorded: processes that share tiers or reopen a file depend on these values.
TEST(KeyHasherTest, KeysAreStable) {
  const Hashed hashed =
      hash_all(KeyHasher::make(kSpace, kSecret).with({.salt = "s", .lora_name = "l"}), tokens_from(0, 48));
  EXPECT_EQ(hashed.keys[0].to_string(), "0:EEo1Lwx4WgQ:13Mwpxb84bC");
  EXPECT_EQ(hashed.keys[1].to_string(), "1:C1F4YynSSrd:12PsFBG6UYY");
  EXPECT_EQ(hashed.keys[2].to_string(), "2:BG54mmjFm3D:1PLPQSky1s");
}

TEST(KeyHasherTest, EverythingThatSeparatesRequestsMakesOtherKeys) {
  const KeyHasher hasher = KeyHasher::make(kSpace, kSecret);
  const std::vector<KeyHasher> all = {
      hasher,
      KeyHasher::make(kSpace, KeySecret::random()),
      KeyHasher::make(kSpace),
      KeyHasher::make({.tenant = "acm", .model = "llama"}, kSecret),
      KeyHasher::make({.tenant = "", .model = "acmellama"}, kSecret),
      KeyHasher::make({.tenant = "acmellama", .model = ""}, kSecret),
      KeyHasher::of_process(),
      KeyHasher::dynamo(),
      hasher.with({.salt = "a"}),
      hasher.with({.lora_name = "a"}),
      hasher.with({.salt = "ab"}),
      hasher.with({.salt = "a", .lora_name = "b"}),
      hasher.with({.salt = std::string_view("\0", 1)}),
      hasher.with({.salt = std::string_view("a\0\0\0\0\0\0\0\0", 9)}),
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(first_key(all[i]), first_key(all[j])) << i << " and " << j;
    }
  }
  EXPECT_EQ(first_key(hasher), first_key(hasher.with({})));
  EXPECT_EQ(first_key(hasher.with({.salt = "a"})), first_key(hasher.with({.salt = "b"}).with({.salt = "a"})));
  Namespace next = kSpace;
  next.weights_generation = 9;
  EXPECT_EQ(first_key(hasher), first_key(KeyHasher::make(next, kSecret))) << "requests outlive a change of the weights";
}

TEST(KeyHasherTest, DynamoIsTheHashOfRouters) {
  const std::vector<Token> tokens = tokens_from(1, 4);
  const Hashed hashed = hash_all(KeyHasher::make({.scheme = KeyScheme::kDynamo}).with({.salt = "tenant-a"}), tokens, 4);
  EXPECT_EQ(hashed.blocks[0], hash_block(tokens, salt_hash("tenant-a", "")));
  EXPECT_EQ(hashed.keys[0], *BlockKey::root(sequence_hash_of_root(hashed.blocks[0])));
}

TEST(KeyHasherTest, SchemesOfEnginesHaveNoKeysForTokens) {
  for (const KeyScheme scheme : {KeyScheme::kVllm, KeyScheme::kSglang, KeyScheme::kRouter}) {
    const KeyHasher hasher = KeyHasher::make({.scheme = scheme});
    std::vector<BlockKey> keys(1);
    const std::vector<Token> tokens(16);
    const Result<std::size_t> hashed = hash_blocks(tokens, 16, hasher, std::nullopt, keys);
    ASSERT_FALSE(hashed);
    EXPECT_EQ(hashed.error().code, ErrorCode::kFailedPrecondition);
    EXPECT_NE(hashed.error().message.find(to_string(scheme)), std::string::npos);
    EXPECT_FALSE(TokenBlockSequence::create(tokens, 16, hasher));
  }
}

// --- the attack that the keyed scheme prevents ---
//
// XXH3 of 64 bytes is a sum of four lanes: fold((low ^ (secret + seed)) * (high ^ (secret' - seed))), where fold adds
// nothing to a product below 2^64. An attacker that knows the seed makes the first factor of a lane 0, so that the lane
// adds nothing, or 1, so that it adds any chosen value.

// The first 64 bytes of XXH3's default secret, as words.
constexpr std::array<std::uint64_t, 8> kXxh3Secret = {0xbe4ba423396cfeb8U, 0x1cad21f72c81017cU, 0xdb979083e96dd4deU,
                                                      0x1f67b3b7a4a44072U, 0x78e5c0cc4ee679cbU, 0x2172ffcc7dd05a82U,
                                                      0x8e2443f7744608b8U, 0x4c263a81e69035e0U};

struct Lane {
  std::size_t word;    // of the block's eight
  std::size_t secret;  // word of the secret
};
constexpr Lane kLanes[] = {{0, 0}, {6, 2}, {2, 4}, {4, 6}};
using Words = std::array<std::uint64_t, 8>;

std::uint64_t lane_sum(const Words& words, std::uint64_t seed) {
  __extension__ using Wide = unsigned __int128;
  std::uint64_t sum = 0;
  for (const Lane& lane : kLanes) {
    const Wide product = static_cast<Wide>(words[lane.word] ^ (kXxh3Secret[lane.secret] + seed)) *
                         (words[lane.word + 1] ^ (kXxh3Secret[lane.secret + 1] - seed));
    sum += static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  return sum;
}

// Tokens whose hash under `own` is that of `block` under `other`.
std::vector<Token> forge(std::span<const Token> block, SaltHash other, SaltHash own) {
  Words words;
  std::memcpy(words.data(), block.data(), sizeof(words));
  const std::uint64_t wanted = lane_sum(words, value_of(other));
  const std::uint64_t seed = value_of(own);
  for (const Lane& lane : kLanes) {
    words[lane.word] = kXxh3Secret[lane.secret] + seed;
  }
  words[0] ^= 1;
  words[1] = wanted ^ (kXxh3Secret[1] - seed);
  std::vector<Token> forged(16);
  std::memcpy(forged.data(), words.data(), sizeof(words));
  return forged;
}

TEST(KeyForgeryTest, WorksOnDynamoAndNotOnNative) {
  const std::vector<Token> theirs = tokens_from(5000, 48);
  const SaltHash their_salt = salt_hash("victim", "");
  const SaltHash own_salt = salt_hash("attacker", "");
  std::vector<Token> forged;
  for (std::size_t block = 0; block < 3; ++block) {
    const std::vector<Token> tokens = forge(std::span(theirs).subspan(16 * block, 16), their_salt, own_salt);
    forged.insert(forged.end(), tokens.begin(), tokens.end());
  }
  ASSERT_NE(forged, theirs);
  EXPECT_EQ(hash_all(KeyHasher::dynamo(own_salt), forged).keys, hash_all(KeyHasher::dynamo(their_salt), theirs).keys)
      << "this is why dynamo must not be used where tenants do not trust each other";

  const KeyHasher native = KeyHasher::make({});
  const Hashed attack = hash_all(native.with({.salt = "attacker"}), forged);
  const Hashed truth = hash_all(native.with({.salt = "victim"}), theirs);
  const Hashed same_salt = hash_all(native.with({.salt = "victim"}), forged);
  for (std::size_t block = 0; block < 3; ++block) {
    EXPECT_NE(attack.keys[block], truth.keys[block]);
    EXPECT_NE(same_salt.keys[block], truth.keys[block]);
    EXPECT_NE(attack.blocks[block], truth.blocks[block]);
  }
}

// No lane of a block can be changed so that the others make up for it: every bit of the tokens changes half of the key.
TEST(KeyForgeryTest, EveryBitOfTheTokensChangesHalfOfTheKey) {
  const KeyHasher hasher = KeyHasher::make({});
  const std::vector<Token> tokens = tokens_from(7, 16);
  const BlockKey key = hash_all(hasher, tokens).keys[0];
  int total = 0;
  for (std::size_t bit = 0; bit < 512; ++bit) {
    std::vector<Token> changed = tokens;
    changed[bit / 32] ^= Token{1} << (bit % 32);
    const BlockKey other = hash_all(hasher, changed).keys[0];
    const int differing =
        std::popcount(key.high_word() ^ other.high_word()) + std::popcount(key.low_word() ^ other.low_word());
    EXPECT_GT(differing, 20) << "bit " << bit;
    total += differing;
  }
  EXPECT_NEAR(total / 512.0, 59, 2) << "of 118 bits";
}

// Keys of one tenant reveal nothing about another's, not even that the tokens are the same.
TEST(KeyForgeryTest, SaltsAndTenantsShareNoBitsOfKeys) {
  const KeyHasher one = KeyHasher::make({.tenant = "a"}, kSecret);
  const KeyHasher other = KeyHasher::make({.tenant = "b"}, kSecret);
  int total = 0;
  constexpr int kBlocks = 512;
  const std::vector<Token> tokens = tokens_from(0, 16 * kBlocks);
  for (const auto& [mine, theirs] :
       {std::pair(one, other), std::pair(one.with({.salt = "x"}), one.with({.salt = "y"}))}) {
    const Hashed a = hash_all(mine, tokens);
    const Hashed b = hash_all(theirs, tokens);
    total = 0;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      EXPECT_NE(a.keys[i].sequence_hash(), b.keys[i].sequence_hash());
      total += std::popcount(value_of(a.keys[i].sequence_hash()) ^ value_of(b.keys[i].sequence_hash()));
    }
    EXPECT_NEAR(static_cast<double>(total) / kBlocks, 32, 1.5);
  }
}

}  // namespace
}  // namespace cairn
