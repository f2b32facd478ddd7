#include "cairn/tokens/hashes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {
namespace {

std::vector<Token> tokens_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Hashed {
  std::vector<std::uint64_t> blocks;
  std::vector<std::uint64_t> sequences;
  std::vector<BlockKey> keys;
};

Hashed hash_all(std::span<const Token> tokens, std::uint32_t block_size, const KeyHasher& hasher = KeyHasher::dynamo(),
                const std::optional<BlockKey>& parent = std::nullopt, std::span<const MmRun> runs = {}) {
  const std::size_t count = tokens.size() / block_size;
  Hashed hashed;
  hashed.keys.resize(count);
  std::vector<BlockHash> blocks(count);
  EXPECT_EQ(*hash_blocks(tokens, block_size, hasher, parent, hashed.keys, blocks, runs), count);
  for (std::size_t i = 0; i < count; ++i) {
    hashed.blocks.push_back(value_of(blocks[i]));
    hashed.sequences.push_back(value_of(hashed.keys[i].sequence_hash()));
  }
  return hashed;
}

using Words = std::vector<std::uint64_t>;

TEST(HashesTest, BlocksOfFour) {
  const Hashed hashed = hash_all(tokens_from(1, 12), 4);
  EXPECT_EQ(hashed.blocks, (Words{14643705804678351452U, 16777012769546811212U, 483935686894639516U}));
  EXPECT_EQ(hashed.sequences, (Words{14643705804678351452U, 4945711292740353085U, 12583592247330656132U}));
  const Hashed from_zero = hash_all(tokens_from(0, 8), 4);
  EXPECT_EQ(from_zero.blocks, (Words{9143094415614847814U, 12124091508212882195U}));
  EXPECT_EQ(from_zero.sequences, (Words{9143094415614847814U, 9510318385840434533U}));
}

TEST(HashesTest, BlocksOfSixteen) {
  const Hashed hashed = hash_all(tokens_from(0, 64), 16);
  EXPECT_EQ(hashed.blocks,
            (Words{15310707395893867146U, 15292316782987903195U, 5532946206955930018U, 14928757266181269122U}));
  EXPECT_EQ(hashed.sequences,
            (Words{15310707395893867146U, 13769157705258532664U, 11879827756109914528U, 3888788807566526800U}));
}

TEST(HashesTest, BlocksOfSixtyFour) {
  const Hashed hashed = hash_all(tokens_from(0, 256), 64);
  EXPECT_EQ(hashed.blocks,
            (Words{3480597578098033343U, 3318286205056455972U, 1390211181667144747U, 6966340276209992787U}));
  EXPECT_EQ(hashed.sequences,
            (Words{3480597578098033343U, 2575318956255022795U, 15087857196529367026U, 16084599388174964645U}));
}

TEST(HashesTest, SaltsAndAdaptersSeedTheBlock) {
  EXPECT_EQ(value_of(hash_block(tokens_from(1, 4), SaltHash{0})), 8052976908588476977U);
  EXPECT_EQ(value_of(salt_hash("", "")), 1337U);
  EXPECT_EQ(value_of(salt_hash("", "alpha-7b")), 723495307357893745U);
  EXPECT_EQ(value_of(hash_block(tokens_from(1, 4), salt_hash("", "alpha-7b"))), 16548428770143335509U);
  EXPECT_EQ(value_of(salt_hash("tenant-a", "")), 1948188790972764086U);
  EXPECT_EQ(value_of(salt_hash("tenant-a", "alpha-7b")), 2671684098330656494U);
  EXPECT_NE(salt_hash("x", ""), salt_hash("", "x"));
}

TEST(HashesTest, ABlockUnderARunIsHashedInFrames) {
  std::vector<Token> tokens = {100, 101, 102, 103, 0, 0, 106, 107};
  const MmRun run{.offset = 4, .length = 2, .mm_hash = 0xAA};
  EXPECT_EQ(hash_all(tokens, 8, KeyHasher::dynamo(), std::nullopt, {&run, 1}).blocks, Words{12380118950545462472U});
  tokens[4] = 77;
  EXPECT_EQ(hash_all(tokens, 8, KeyHasher::dynamo(), std::nullopt, {&run, 1}).blocks, Words{12380118950545462472U})
      << "the tokens under a run do not matter";
}

TEST(HashesTest, FramesOfLongBlocksAreOneText) {
  constexpr std::size_t size = 200;
  const std::vector<Token> tokens = tokens_from(7, 2 * size);
  const MmRun runs[] = {{.offset = size + 3, .length = 2, .mm_hash = 11},
                        {.offset = size + 60, .length = 90, .mm_hash = 12}};
  std::vector<std::byte> frames(13 * size);
  for (std::size_t i = 0; i < size; ++i) {
    const MmRun* const run = i >= 3 && i < 5 ? &runs[0] : i >= 60 && i < 150 ? &runs[1] : nullptr;
    const Token id = run != nullptr ? static_cast<Token>(size + i - run->offset) : tokens[size + i];
    const std::uint64_t item = run != nullptr ? run->mm_hash : 0;
    frames[13 * i] = std::byte{run != nullptr};
    std::memcpy(&frames[13 * i + 1], &id, sizeof(id));
    std::memcpy(&frames[13 * i + 5], &item, sizeof(item));
  }
  std::vector<Token> as_tokens(frames.size() / sizeof(Token));
  std::memcpy(as_tokens.data(), frames.data(), frames.size());
  EXPECT_EQ(hash_all(tokens, size, KeyHasher::dynamo(), std::nullopt, runs).blocks[1],
            value_of(hash_block(as_tokens, kNoSalt)));
}

TEST(HashesTest, OnlyBlocksThatARunTouchesAreFramed) {
  const std::vector<Token> tokens = tokens_from(0, 40);
  const MmRun run{.offset = 10, .length = 8, .mm_hash = 9};
  const Hashed plain = hash_all(tokens, 4);
  const Hashed framed = hash_all(tokens, 4, KeyHasher::dynamo(), std::nullopt, {&run, 1});
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(plain.blocks[i] == framed.blocks[i], i < 2 || i > 4) << "block " << i;
    EXPECT_EQ(plain.sequences[i] == framed.sequences[i], i < 2) << "block " << i;
  }
}

TEST(HashesTest, ARunCutInTwoHashesAsOne) {
  const std::vector<Token> tokens = tokens_from(0, 300);
  const MmRun whole{.offset = 3, .length = 200, .mm_hash = 5};
  const MmRun cut[] = {{.offset = 3, .length = 90, .mm_hash = 5},
                       {.offset = 93, .length = 110, .mm_hash = 5, .item_offset = 90}};
  EXPECT_EQ(hash_all(tokens, 100, KeyHasher::dynamo(), std::nullopt, {&whole, 1}).blocks,
            hash_all(tokens, 100, KeyHasher::dynamo(), std::nullopt, cut).blocks);
}

RC_GTEST_PROP(HashesProperty, TheBatchIsTheSingleCallsChained, (std::vector<Token> tokens, std::uint64_t seed)) {
  const auto block_size = *rc::gen::element<std::uint32_t>(1, 2, 3, 4, 8, 16, 32, 61, 64);
  tokens.resize(tokens.size() * 7);
  std::iota(tokens.begin(), tokens.end(), static_cast<Token>(seed));
  const SaltHash salt{seed};
  const auto start = *rc::gen::element<std::uint32_t>(0, 1, 250, 256, 65530, 65536);
  const std::optional<BlockKey> parent =
      start == 0 ? std::optional<BlockKey>()
                 : BlockKey::make_checked(start - 1, SequenceHash{seed * 31}, SequenceHash{seed + 1});
  const Hashed hashed = hash_all(tokens, block_size, KeyHasher::dynamo(salt), parent);
  std::optional<BlockKey> last = parent;
  for (std::size_t i = 0; i < hashed.keys.size(); ++i) {
    const BlockHash block = hash_block(std::span(tokens).subspan(i * block_size, block_size), salt);
    last = last ? *last->extend(block) : *BlockKey::root(sequence_hash_of_root(block));
    RC_ASSERT(hashed.keys[i] == *last);
    RC_ASSERT(hashed.blocks[i] == value_of(block));
  }
}

TEST(HashesTest, BlocksCrossTheKeyLayouts) {
  const std::vector<Token> tokens = tokens_from(0, 65800);
  const Hashed hashed = hash_all(tokens, 1);
  for (const std::size_t i : {1U, 255U, 256U, 257U, 65535U, 65536U, 65799U}) {
    EXPECT_EQ(hashed.keys[i], *hashed.keys[i - 1].extend(BlockHash{hashed.blocks[i]})) << "position " << i;
  }
}

TEST(HashesTest, BadCallsWriteNothing) {
  const std::vector<Token> tokens = tokens_from(0, 9);
  const BlockKey untouched = *BlockKey::root(SequenceHash{1});
  std::array<BlockKey, 2> keys{untouched, untouched};
  std::array<BlockHash, 1> hashes{};
  const auto code = [](const Result<std::size_t>& result) { return result.error().code; };

  EXPECT_EQ(code(hash_blocks(tokens, 0, KeyHasher::dynamo(), std::nullopt, keys)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(hash_blocks(tokens, 3, KeyHasher::dynamo(), std::nullopt, keys)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(hash_blocks(tokens, 4, KeyHasher::dynamo(), std::nullopt, keys, hashes)), ErrorCode::kInvalidArgument);
  const BlockKey last = BlockKey::make_checked(BlockKey::kMaxPosition - 1, SequenceHash{1}, SequenceHash{1});
  EXPECT_EQ(code(hash_blocks(tokens, 4, KeyHasher::dynamo(), last, keys)), ErrorCode::kOutOfRange);
  const MmRun empty{.offset = 1, .length = 0};
  EXPECT_EQ(code(hash_blocks(tokens, 4, KeyHasher::dynamo(), std::nullopt, keys, {}, {&empty, 1})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(keys[0], untouched);
  EXPECT_EQ(keys[1], untouched);

  EXPECT_EQ(*hash_blocks(std::span(tokens).first(4), 4, KeyHasher::dynamo(), last, keys), 1U)
      << "the last position is valid";
  EXPECT_EQ(keys[0].position(), BlockKey::kMaxPosition);
  EXPECT_EQ(*hash_blocks(std::span(tokens).first(3), 4, KeyHasher::dynamo(), std::nullopt, {}), 0U);
}

TEST(MmRunTest, NamesTheRunThatIsWrong) {
  const auto message = [](std::vector<MmRun> runs) {
    const Status status = check_mm_runs(runs);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({{.offset = 0, .length = 2}, {.offset = 2, .length = 1}}), "");
  EXPECT_NE(message({{.offset = 0, .length = 2}, {.offset = 5, .length = 0}}).find("run 1"), std::string::npos);
  EXPECT_NE(message({{.offset = 0, .length = 2}, {.offset = 1, .length = 1}}).find("token 2"), std::string::npos);
  EXPECT_NE(message({{.offset = 9, .length = 2}, {.offset = 1, .length = 1}}).find("run 1"), std::string::npos);
  EXPECT_NE(message({{.offset = ~std::uint64_t{0}, .length = 2}}).find("run 0"), std::string::npos);
  EXPECT_NE(message({{.offset = 0, .length = 2, .item_offset = ~0U}}).find("run 0"), std::string::npos);
}

}  // namespace
}  // namespace cairn
