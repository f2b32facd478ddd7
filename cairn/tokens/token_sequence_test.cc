#include "cairn/tokens/token_sequence.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace cairn {
namespace {

std::vector<Token> tokens_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Request {
  std::vector<Token> tokens;
  std::vector<MmRun> runs;
  std::uint32_t block_size = 1;
  KeyHasher hasher = KeyHasher::dynamo();
};

Request any_request() {
  Request request;
  request.block_size = *rc::gen::element<std::uint32_t>(1, 2, 4, 7, 16);
  const KeyHasher base = *rc::gen::element(KeyHasher::dynamo(), KeyHasher::of_process());
  const std::string salt = *rc::gen::element<std::string>("", "tenant");
  const std::string lora_name = *rc::gen::element<std::string>("", "lora");
  request.hasher = base.with({.salt = salt, .lora_name = lora_name});
  const auto length = *rc::gen::inRange<std::size_t>(0, 100);
  request.tokens = *rc::gen::container<std::vector<Token>>(length, rc::gen::inRange<Token>(0, 50000));
  std::size_t place = *rc::gen::inRange<std::size_t>(0, 40);
  while (place < length) {
    const auto run_length = *rc::gen::inRange<std::uint32_t>(1, 20);
    request.runs.push_back({.offset = place,
                            .length = std::min<std::uint32_t>(run_length, static_cast<std::uint32_t>(length - place)),
                            .mm_hash = *rc::gen::inRange<std::uint64_t>(0, 1000)});
    place += run_length + *rc::gen::inRange<std::size_t>(0, 30);
  }
  return request;
}

TokenBlockSequence whole(const Request& request) {
  return *TokenBlockSequence::create(request.tokens, request.block_size, request.hasher, request.runs);
}

// The runs of `request` inside tokens begin to end - 1, cut at both ends.
std::vector<MmRun> runs_inside(const Request& request, std::uint64_t begin, std::uint64_t end) {
  std::vector<MmRun> inside;
  for (const MmRun& run : request.runs) {
    const std::uint64_t from = std::max(run.offset, begin);
    const std::uint64_t to = std::min(run.end(), end);
    if (from < to) {
      inside.push_back({.offset = from,
                        .length = static_cast<std::uint32_t>(to - from),
                        .mm_hash = run.mm_hash,
                        .item_offset = static_cast<std::uint32_t>(from - run.offset)});
    }
  }
  return inside;
}

bool same(const TokenBlockSequence& a, const TokenBlockSequence& b) {
  return std::ranges::equal(a.tokens(), b.tokens()) && std::ranges::equal(a.keys(), b.keys()) &&
         std::ranges::equal(a.block_hashes(), b.block_hashes());
}

// Adds tokens from the sequence's end to `end`, with the runs that cover them.
void stream(TokenBlockSequence& sequence, const Request& request, std::size_t end) {
  const std::size_t begin = sequence.size();
  const std::size_t blocks = sequence.block_count();
  const Result<BlockRange> added =
      sequence.extend(std::span(request.tokens).subspan(begin, end - begin), runs_inside(request, begin, end));
  RC_ASSERT(added.has_value());
  RC_ASSERT(*added == (BlockRange{blocks, end / request.block_size}));
}

RC_GTEST_PROP(TokenSequenceProperty, PiecesMakeTheWhole, ()) {
  const Request request = any_request();
  TokenBlockSequence sequence = *TokenBlockSequence::create({}, request.block_size, request.hasher);
  while (sequence.size() < request.tokens.size()) {
    const auto step = *rc::gen::inRange<std::size_t>(1, 20);
    stream(sequence, request, std::min(sequence.size() + step, request.tokens.size()));
  }
  RC_ASSERT(same(sequence, whole(request)));
}

RC_GTEST_PROP(TokenSequenceProperty, SingleTokensMakeTheWhole, ()) {
  Request request = any_request();
  request.runs.clear();
  TokenBlockSequence sequence = *TokenBlockSequence::create({}, request.block_size, request.hasher);
  for (std::size_t i = 0; i < request.tokens.size(); ++i) {
    const Result<std::optional<std::size_t>> completed = sequence.append(request.tokens[i]);
    RC_ASSERT(completed->has_value() == ((i + 1) % request.block_size == 0));
    RC_ASSERT(completed->value_or(i / request.block_size) == i / request.block_size);
  }
  RC_ASSERT(same(sequence, whole(request)));
}

RC_GTEST_PROP(TokenSequenceProperty, WhatIsTakenBackAndGivenAgainIsTheSame, ()) {
  const Request request = any_request();
  TokenBlockSequence sequence = whole(request);
  for (int round = 0; round < 4; ++round) {
    const auto keep = *rc::gen::inRange<std::size_t>(0, sequence.size() + 1);
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        RC_ASSERT(sequence.truncate(keep).has_value());
        break;
      case 1:
        RC_ASSERT(sequence.unwind(sequence.size() - keep).has_value());
        break;
      default:
        while (sequence.size() > keep) {
          const Token last = sequence.tokens().back();
          RC_ASSERT(sequence.pop() == last);
        }
    }
    Request shorter = request;
    shorter.tokens.resize(keep);
    shorter.runs = runs_inside(request, 0, keep);
    RC_ASSERT(same(sequence, whole(shorter)));
    RC_ASSERT(std::ranges::equal(sequence.mm_runs(), whole(shorter).mm_runs()) || round > 0);
    stream(sequence, request, request.tokens.size());
    RC_ASSERT(same(sequence, whole(request)));
  }
}

RC_GTEST_PROP(TokenSequenceProperty, SplitPartsMakeTheWhole, ()) {
  const Request request = any_request();
  const TokenBlockSequence sequence = whole(request);
  const auto length = *rc::gen::inRange<std::size_t>(0, sequence.size() + 1);
  TokenBlockSequence::Split split = *sequence.split_at(length);
  Request shorter = request;
  shorter.tokens.resize(length);
  shorter.runs = runs_inside(request, 0, length);
  RC_ASSERT(same(split.prefix, whole(shorter)));
  RC_ASSERT(split.prefix.extend(split.rest, split.rest_runs).has_value());
  RC_ASSERT(same(split.prefix, sequence));
}

TEST(TokenSequenceTest, NamesFullBlocksOnly) {
  const TokenBlockSequence sequence = *TokenBlockSequence::create(tokens_from(1, 14), 4, KeyHasher::dynamo());
  EXPECT_EQ(sequence.size(), 14U);
  ASSERT_EQ(sequence.block_count(), 3U);
  EXPECT_EQ(value_of(sequence.keys()[2].sequence_hash()), 12583592247330656132U);
  EXPECT_EQ(value_of(sequence.block_hashes()[2]), 483935686894639516U);
  EXPECT_TRUE(std::ranges::equal(sequence.tail(), std::vector<Token>{13, 14}));
  EXPECT_EQ(sequence.tail_remaining(), 2U);

  std::uint32_t position = 0;
  std::optional<SequenceHash> parent;
  for (const TokenBlockView& block : sequence.blocks()) {
    EXPECT_EQ(block.position(), position);
    EXPECT_EQ(block.parent_sequence_hash(), parent);
    EXPECT_EQ(block.tokens().front(), 1 + 4 * position);
    EXPECT_EQ(block.tokens().size(), 4U);
    EXPECT_EQ(block.key(), sequence.keys()[position]);
    parent = block.sequence_hash();
    ++position;
  }
  EXPECT_EQ(position, 3U);
}

TEST(TokenSequenceTest, AnEmptySequenceHasNothing) {
  TokenBlockSequence sequence = *TokenBlockSequence::create({}, 4);
  EXPECT_TRUE(sequence.empty());
  EXPECT_EQ(sequence.block_count(), 0U);
  EXPECT_EQ(sequence.tail_remaining(), 4U);
  EXPECT_EQ(sequence.pop(), std::nullopt);
  EXPECT_TRUE(sequence.unwind(0));
  EXPECT_TRUE(sequence.extend({})->empty());
}

TEST(TokenSequenceTest, SaltsSeparate) {
  const std::vector<Token> tokens = tokens_from(1, 4);
  EXPECT_NE(TokenBlockSequence::create(tokens, 4)->keys()[0],
            TokenBlockSequence::create(tokens, 4, KeyHasher::of_process().with({.salt = "s"}))->keys()[0]);
}

TEST(TokenSequenceTest, ResetKeepsSizeAndSalt) {
  const MmRun run{.offset = 1, .length = 2, .mm_hash = 3};
  const KeyHasher hasher = KeyHasher::of_process().with({.salt = "5"});
  TokenBlockSequence sequence = *TokenBlockSequence::create(tokens_from(1, 9), 4, hasher, {&run, 1});
  sequence.reset();
  EXPECT_TRUE(sequence.empty());
  EXPECT_TRUE(sequence.mm_runs().empty());
  EXPECT_EQ(sequence.extend(tokens_from(1, 9))->size(), 2U);
  EXPECT_TRUE(std::ranges::equal(sequence.keys(), TokenBlockSequence::create(tokens_from(1, 9), 4, hasher)->keys()));
}

TEST(TokenSequenceTest, TokensAreFoundByPlace) {
  const TokenBlockSequence sequence = *TokenBlockSequence::create(tokens_from(1, 9), 4);
  EXPECT_TRUE(std::ranges::equal(*sequence.tokens_at(3, 6), std::vector<Token>{4, 5, 6}));
  EXPECT_TRUE(sequence.tokens_at(9, 9)->empty());
  EXPECT_EQ(sequence.tokens_at(3, 10).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(sequence.tokens_at(4, 3).error().code, ErrorCode::kInvalidArgument);
}

TEST(TokenSequenceTest, RunsMayComeInAnyOrder) {
  const std::vector<MmRun> sorted = {{.offset = 1, .length = 2, .mm_hash = 3},
                                     {.offset = 5, .length = 1, .mm_hash = 4}};
  const std::vector<MmRun> swapped = {sorted[1], sorted[0]};
  EXPECT_TRUE(same(*TokenBlockSequence::create(tokens_from(0, 8), 4, KeyHasher::dynamo(), sorted),
                   *TokenBlockSequence::create(tokens_from(0, 8), 4, KeyHasher::dynamo(), swapped)));
}

TEST(TokenSequenceTest, BadCallsChangeNothing) {
  EXPECT_EQ(TokenBlockSequence::create({}, 0).error().code, ErrorCode::kInvalidArgument);
  TokenBlockSequence sequence = *TokenBlockSequence::create(tokens_from(1, 9), 4);
  const TokenBlockSequence before = sequence;
  EXPECT_EQ(sequence.truncate(10).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(sequence.unwind(10).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(sequence.split_at(10).error().code, ErrorCode::kOutOfRange);
  const std::vector<std::vector<MmRun>> bad = {
      {{.offset = 8, .length = 2}},   // begins in tokens that are already there
      {{.offset = 10, .length = 4}},  // ends beyond the new ones
      {{.offset = 10, .length = 0}},
      {{.offset = 10, .length = 2}, {.offset = 11, .length = 1}},
      {{.offset = ~std::uint64_t{0}, .length = 2}},
  };
  for (const std::vector<MmRun>& runs : bad) {
    const Result<BlockRange> extended = sequence.extend(tokens_from(0, 4), runs);
    ASSERT_FALSE(extended);
    EXPECT_EQ(extended.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(same(sequence, before));
  EXPECT_TRUE(sequence.mm_runs().empty());
}

TEST(TokenSequenceTest, MoreBlocksThanPositionsAreRefused) {
  const std::vector<Token> tokens(std::size_t{BlockKey::kMaxPosition} + 2);
  EXPECT_EQ(TokenBlockSequence::create(tokens, 1).error().code, ErrorCode::kOutOfRange);
}

TEST(TokenBlockSequenceTest, KeysOfTheEngineAreAdopted) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kVllm});
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const BlockKey first = *BlockKey::root(SequenceHash{11});
  TokenBlockSequence sequence = *TokenBlockSequence::create_adopting(tokens, 4, hasher);
  EXPECT_EQ(sequence.size(), 9);
  EXPECT_EQ(sequence.block_count(), 0) << "until the engine gives the keys";
  ASSERT_TRUE(sequence.adopt(std::vector{first}));
  EXPECT_EQ(sequence.keys()[0], first);
  EXPECT_EQ(sequence.block_hashes().size(), 1);
  EXPECT_EQ(sequence.adopt(std::vector{first, first}).error().code, ErrorCode::kOutOfRange) << "one more is full";
  ASSERT_TRUE(sequence.truncate(6));
  EXPECT_EQ(sequence.block_count(), 1);
  ASSERT_TRUE(sequence.truncate(3));
  EXPECT_EQ(sequence.block_count(), 0);
  EXPECT_FALSE(TokenBlockSequence::create_adopting(tokens, 4, KeyHasher::of_process()));
  EXPECT_FALSE((*TokenBlockSequence::create(tokens, 4)).adopt(std::vector{first}));
}

}  // namespace
}  // namespace cairn
