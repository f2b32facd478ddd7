#include "cairn/transfer/executor_conformance_testing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "cairn/transfer/row_sums.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn::testing {

namespace {

void put_random(std::vector<std::byte>& bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min<std::size_t>(8, bytes.size() - at));
  }
}

// With memcmp(): comparing vectors byte by byte would take most of the time of these tests under sanitizers.
bool same(const std::vector<std::vector<std::byte>>& some, const std::vector<std::vector<std::byte>>& others) {
  return std::ranges::equal(some, others, [](const std::vector<std::byte>& one, const std::vector<std::byte>& other) {
    return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
  });
}

// Every row of a block: where it is, and its number.
template <typename Visit>
void for_each_row(const BlockLayout& layout, std::uint32_t block, Visit visit) {
  const KvShape& shape = layout.shape();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t k_or_v = 0; k_or_v < shape.kv; ++k_or_v) {
      for (std::uint32_t token = 0; token < shape.page_size; ++token) {
        for (std::uint32_t head = 0; head < shape.heads; ++head) {
          visit(layout.address(block, layer, k_or_v, token, head), shape.row(layer, k_or_v, token, head));
        }
      }
    }
  }
}

std::vector<BlockPair> random_pairs(std::uint32_t blocks, std::uint32_t count, std::mt19937& random) {
  std::vector<std::uint32_t> to(blocks);
  std::iota(to.begin(), to.end(), 0U);
  std::shuffle(to.begin(), to.end(), random);
  std::vector<BlockPair> pairs(count);
  const bool in_order = random() % 3 == 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    pairs[i] = in_order ? BlockPair{i, i} : BlockPair{static_cast<std::uint32_t>(random() % blocks), to[i]};
  }
  return pairs;
}

std::vector<TransferBlock> blocks_of(std::span<const BlockPair> pairs) {
  std::vector<TransferBlock> blocks;
  for (const BlockPair& pair : pairs) {
    blocks.push_back({.pair = pair, .tag = {pair.source * 77ULL + 1, pair.destination}});
  }
  return blocks;
}

}  // namespace

Exchange::Exchange(const ExecutorCase& of, const KvShape& shape, std::uint32_t blocks, Arrangement from, Arrangement to)
    : source_(of.source({.shape = shape, .arrangement = from, .blocks = blocks, .alignment = of.alignment})),
      destination_(of.destination({.shape = shape, .arrangement = to, .blocks = blocks, .alignment = of.alignment})),
      plan_(plan_between(source_->layout(), destination_->layout())) {
  fill(1);
}

void Exchange::fill(std::uint64_t seed) {
  for (auto& [store, kept] :
       {std::pair(source_.get(), &source_bytes_), std::pair(destination_.get(), &destination_bytes_)}) {
    kept->clear();
    for (std::uint32_t region = 0; region < store->layout()->regions().size(); ++region) {
      std::vector<std::byte>& bytes = kept->emplace_back(store->layout()->regions()[region]->size());
      put_random(bytes, ++seed * 1000 + (store == source_.get() ? 0 : 500));
      store->write(region, 0, bytes);
    }
  }
}

Exchange::Contents Exchange::contents(const BlockStore& store) {
  Contents all;
  for (std::uint32_t region = 0; region < store.layout()->regions().size(); ++region) {
    store.read(region, 0, all.emplace_back(store.layout()->regions()[region]->size()));
  }
  return all;
}

Checksum Exchange::checksum(std::uint32_t source_block, const BlockTag& tag) const {
  const BlockLayout& layout = *source_->layout();
  const std::uint64_t row_bytes = layout.shape().row_bytes();
  BlockSums sums;
  for_each_row(layout, source_block, [&](const BlockLayout::Address& at, std::uint64_t row) {
    sums += sum_words({source_bytes_[at.region].data() + at.offset, row_bytes}, row * ((row_bytes + 7) / 8));
  });
  return finish(sums, layout.shape().block_bytes(), tag);
}

void Exchange::damage(std::uint32_t source_block) {
  const BlockLayout::Address at = source_->layout()->address(source_block, 0, 0, 0, 0);
  source_bytes_[at.region][at.offset] ^= std::byte{1};
  source_->write(at.region, at.offset, {source_bytes_[at.region].data() + at.offset, 1});
}

void Exchange::expect_moved(std::span<const BlockPair> pairs) const { expect_moved(pairs, {}); }

void Exchange::expect_moved(std::span<const BlockPair> pairs, std::span<const BlockPair> torn) const {
  const BlockLayout& from = *source_->layout();
  const BlockLayout& to = *destination_->layout();
  const std::uint64_t row_bytes = from.shape().row_bytes();
  const Contents found = contents(*destination_);
  Contents expected = destination_bytes_;
  for (const BlockPair& pair : pairs) {
    std::vector<BlockLayout::Address> rows(from.shape().rows());
    for_each_row(from, pair.source, [&](const BlockLayout::Address& at, std::uint64_t row) { rows[row] = at; });
    for_each_row(to, pair.destination, [&](const BlockLayout::Address& at, std::uint64_t row) {
      std::memcpy(expected[at.region].data() + at.offset, source_bytes_[rows[row].region].data() + rows[row].offset,
                  row_bytes);
    });
  }
  for (const BlockPair& pair : torn) {
    for_each_row(to, pair.destination, [&](const BlockLayout::Address& at, std::uint64_t /*row*/) {
      std::memcpy(expected[at.region].data() + at.offset, found[at.region].data() + at.offset, row_bytes);
    });
  }
  EXPECT_TRUE(same(found, expected)) << "the destination has wrong bytes after a transfer";
  EXPECT_TRUE(same(contents(*source_), source_bytes_)) << "the source was written";
  EXPECT_TRUE(source_->guards_intact() && destination_->guards_intact());
}

Exchange ExecutorConformanceTest::exchange(std::uint32_t blocks) const {
  const KvShape shape{.layers = 3, .kv = 2, .page_size = 2, .heads = 2, .head_size = 128, .element_bits = 16};
  return Exchange(GetParam(), shape, blocks, Arrangement::kContiguousNhd, Arrangement::kLayersKvHnd);
}

TransferOutcome ExecutorConformanceTest::run(TransferExecutor& executor, Transfer transfer) {
  std::promise<TransferOutcome> done;
  std::promise<void> settled;
  transfer.done = [&](TransferOutcome&& outcome) { done.set_value(std::move(outcome)); };
  transfer.settled = [&] { settled.set_value(); };
  const Result<TransferId> id = executor.submit(std::move(transfer));
  EXPECT_TRUE(id.has_value()) << (id.has_value() ? "" : id.error().to_string());
  if (!id.has_value()) {
    return {};
  }
  TransferOutcome outcome = done.get_future().get();
  settled.get_future().get();
  return outcome;
}

TEST_P(ExecutorConformanceTest, MovesRandomPlansByteForByteWithTheRightChecksums) {
  std::mt19937 random(11);
  const auto executor = make_executor();
  for (int round = 0; round < 24; ++round) {
    SCOPED_TRACE(round);
    const std::uint32_t bits[] = {4, 8, 16, 32};
    const KvShape shape{.layers = static_cast<std::uint32_t>(1 + random() % 4),
                        .kv = static_cast<std::uint32_t>(1 + random() % 2),
                        .page_size = static_cast<std::uint32_t>(1 + random() % 9),
                        .heads = static_cast<std::uint32_t>(1 + random() % 4),
                        .head_size = static_cast<std::uint32_t>(2 * (1 + random() % 100)),
                        .element_bits = bits[random() % 4]};
    const auto blocks = static_cast<std::uint32_t>(1 + random() % 20);
    Exchange between(GetParam(), shape, blocks, kAllArrangements[random() % 6], kAllArrangements[random() % 6]);
    if (!executor->can_move(*between.plan())) {
      ADD_FAILURE() << executor->describe() << " refuses a plan that it should carry out";
      return;
    }
    const std::vector<BlockPair> pairs = random_pairs(blocks, 1 + random() % blocks, random);
    Transfer transfer{.plan = between.plan(), .blocks = blocks_of(pairs)};
    transfer.verify = round % 3 == 0 ? Verify::kCheck : round % 3 == 1 ? Verify::kMake : Verify::kOff;
    for (TransferBlock& block : transfer.blocks) {
      block.expected = between.checksum(block.pair.source, block.tag);
    }
    const std::vector<TransferBlock> given = transfer.blocks;
    const Verify verify = transfer.verify;
    const TransferOutcome outcome = run(*executor, std::move(transfer));
    EXPECT_TRUE(outcome.all_done()) << outcome.error;
    ASSERT_EQ(outcome.blocks.size(), pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(outcome.blocks[i].state, BlockState::kDone);
      EXPECT_EQ(outcome.blocks[i].checksum, verify == Verify::kOff ? Checksum{} : given[i].expected) << "block " << i;
    }
    between.expect_moved(pairs);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST_P(ExecutorConformanceTest, MovesBlocksLargerThanAnyPieceOfWork) {
  const auto executor = make_executor();
  const KvShape shape{.layers = 2, .kv = 2, .page_size = 64, .heads = 8, .head_size = 512, .element_bits = 16};
  for (const Arrangement to : {Arrangement::kContiguousNhd, Arrangement::kLayersBlockHnd}) {
    Exchange between(GetParam(), shape, 3, Arrangement::kContiguousNhd, to);
    const std::vector<BlockPair> pairs = {{0, 2}, {1, 0}};
    Transfer transfer{.plan = between.plan(), .blocks = blocks_of(pairs), .verify = Verify::kCheck};
    for (TransferBlock& block : transfer.blocks) {
      block.expected = between.checksum(block.pair.source, block.tag);
    }
    const TransferOutcome outcome = run(*executor, std::move(transfer));
    EXPECT_TRUE(outcome.all_done()) << outcome.error;
    between.expect_moved(pairs);
  }
}

TEST_P(ExecutorConformanceTest, AddsUpPartsOfABlock) {
  const auto executor = make_executor();
  const Exchange between = exchange();
  BlockSums sums;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const CopyPlanPtr& whole = between.plan();
    const CopyPlanPtr part =
        plan_between(BlockLayoutPtr(whole, &whole->source()), BlockLayoutPtr(whole, &whole->destination()),
                     {.first_layer = layer, .layers = 1});
    const TransferOutcome outcome = run(*executor, {.plan = part, .blocks = {{.pair = {4, 9}}}});
    ASSERT_TRUE(outcome.all_done()) << outcome.error;
    sums += outcome.blocks[0].sums;
  }
  EXPECT_EQ(finish(sums, between.plan()->whole_block_bytes(), {5, 6}), between.checksum(4, {5, 6}));
  between.expect_moved({{{4, 9}}});
}

TEST_P(ExecutorConformanceTest, AWrongChecksumOrTagIsAMismatchOfJustThatBlock) {
  const auto executor = make_executor();
  Exchange between = exchange();
  const std::vector<BlockPair> pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}};
  Transfer transfer{.plan = between.plan(), .blocks = blocks_of(pairs), .verify = Verify::kCheck};
  for (TransferBlock& block : transfer.blocks) {
    block.expected = between.checksum(block.pair.source, block.tag);
  }
  transfer.blocks[0].expected = Checksum{static_cast<std::uint64_t>(transfer.blocks[0].expected) ^ 1};
  transfer.blocks[2].tag.high ^= 1;
  between.damage(3);
  const TransferOutcome outcome = run(*executor, std::move(transfer));
  const BlockState expected[] = {BlockState::kMismatch, BlockState::kDone, BlockState::kMismatch, BlockState::kMismatch,
                                 BlockState::kDone};
  ASSERT_EQ(outcome.blocks.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(outcome.blocks[i].state, expected[i]) << "block " << i;
  }
  EXPECT_THAT(outcome.error, ::testing::HasSubstr("block 0 of 5 (0 to 1) mismatch"));
  between.expect_moved(pairs, pairs);
}

TEST_P(ExecutorConformanceTest, RefusesWhatIsWrongAndLeavesItIntact) {
  const auto executor = make_executor();
  const Exchange between = exchange();
  const auto expect_refused = [&](const CopyPlanPtr& plan, std::vector<BlockPair> pairs, Verify verify) {
    bool called = false;
    Transfer transfer{
        .plan = plan, .blocks = blocks_of(pairs), .verify = verify, .done = [&](TransferOutcome&& /*outcome*/) {
          called = true;
        }};
    const Result<TransferId> id = executor->submit(std::move(transfer));
    ASSERT_FALSE(id.has_value());
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument) << id.error().to_string();
    EXPECT_NE(id.error().message, "");
    EXPECT_EQ(transfer.plan, plan);
    EXPECT_EQ(transfer.blocks.size(), pairs.size());
    EXPECT_TRUE(static_cast<bool>(transfer.done));
    EXPECT_FALSE(called);
  };
  const CopyPlanPtr& plan = between.plan();
  expect_refused(nullptr, {{0, 0}}, Verify::kMake);
  expect_refused(plan, {{0, 0}, {16, 1}}, Verify::kMake);
  expect_refused(plan, {{0, 16}}, Verify::kMake);
  expect_refused(plan, {{0, 3}, {1, 3}}, Verify::kMake);
  const CopyPlanPtr part =
      plan_between(BlockLayoutPtr(plan, &plan->source()), BlockLayoutPtr(plan, &plan->destination()), {.layers = 1});
  expect_refused(part, {{0, 0}}, Verify::kCheck);
  if (GetParam().foreign) {
    const auto foreign =
        GetParam().foreign({.shape = plan->source().shape(), .blocks = 16, .alignment = GetParam().alignment});
    const CopyPlanPtr strange = plan_between(foreign->layout(), BlockLayoutPtr(plan, &plan->destination()));
    EXPECT_FALSE(executor->can_move(*strange));
    expect_refused(strange, {{0, 0}}, Verify::kMake);
  }
  EXPECT_EQ(executor->load().transfers, 0U);
  between.expect_moved({});
}

TEST_P(ExecutorConformanceTest, AFullQueuePushesBackAndRecovers) {
  constexpr std::size_t kLimit = 3;
  const auto executor = make_executor(kLimit);
  const Exchange between = exchange();
  // The first callback holds up all others, and a transfer keeps its place until its callback runs.
  std::promise<void> first_done;
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::atomic<int> done = 0;
  std::promise<void> all_settled;
  std::atomic<int> settled = 0;
  constexpr int kAll = kLimit + 2;
  std::uint32_t next = 0;
  const auto transfer = [&] {
    const std::uint32_t block = next++;
    return Transfer{.plan = between.plan(),
                    .blocks = {{.pair = {block, block}}},
                    .done =
                        [&](TransferOutcome&& outcome) {
                          EXPECT_TRUE(outcome.all_done()) << outcome.error;
                          if (done.fetch_add(1) == 0) {
                            first_done.set_value();
                            may_go_on.get();
                          }
                        },
                    .settled =
                        [&] {
                          if (settled.fetch_add(1) + 1 == kAll) {
                            all_settled.set_value();
                          }
                        }};
  };
  ASSERT_TRUE(executor->submit(transfer()).has_value());
  first_done.get_future().get();
  for (std::size_t i = 0; i < kLimit; ++i) {
    ASSERT_TRUE(executor->submit(transfer()).has_value());
  }
  EXPECT_EQ(executor->load().transfers, kLimit);
  EXPECT_EQ(executor->load().blocks, kLimit);
  EXPECT_EQ(executor->load().limit, kLimit);
  Transfer more = transfer();
  Result<TransferId> refused = executor->submit(std::move(more));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  ASSERT_EQ(more.blocks.size(), 1U);
  go_on.set_value();
  while (!executor->submit(std::move(more)).has_value()) {
    std::this_thread::yield();
  }
  all_settled.get_future().get();
  EXPECT_EQ(done.load(), kAll);
  EXPECT_EQ(executor->load().transfers, 0U);
  EXPECT_EQ(executor->load().blocks, 0U);
  between.expect_moved({{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}}});
}

TEST_P(ExecutorConformanceTest, WhatIsLateFromTheStartExpiresUntouched) {
  ManualClock clock;
  clock.advance(std::chrono::seconds(5));
  const auto executor = GetParam().make(clock, 8);
  const Exchange between = exchange();
  const TransferOutcome late = run(*executor, {.plan = between.plan(),
                                               .blocks = blocks_of(std::vector<BlockPair>{{0, 0}, {1, 1}}),
                                               .deadline = TimePoint(std::chrono::seconds(5))});
  ASSERT_EQ(late.blocks.size(), 2U);
  EXPECT_EQ(late.blocks[0].state, BlockState::kExpired);
  EXPECT_EQ(late.blocks[1].state, BlockState::kExpired);
  EXPECT_THAT(late.error, ::testing::HasSubstr("block 0 of 2 (0 to 0) expired"));
  const TransferOutcome in_time = run(*executor, {.plan = between.plan(),
                                                  .blocks = blocks_of(std::vector<BlockPair>{{2, 2}}),
                                                  .deadline = TimePoint(std::chrono::seconds(6))});
  EXPECT_TRUE(in_time.all_done()) << in_time.error;
  executor->check_deadlines();
  between.expect_moved({{{2, 2}}});
}

TEST_P(ExecutorConformanceTest, DeadlinesThatPassOnTheWayLeaveWholeBlocksOrExpiredOnes) {
  const auto executor = make_executor();
  const Exchange between = exchange(64);
  std::vector<BlockPair> pairs(64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    pairs[i] = {i, 63 - i};
  }
  const TransferOutcome outcome = run(*executor, {.plan = between.plan(),
                                                  .blocks = blocks_of(pairs),
                                                  .deadline = steady_clock().now() + std::chrono::microseconds(60)});
  ASSERT_EQ(outcome.blocks.size(), 64U);
  std::vector<BlockPair> moved;
  std::vector<BlockPair> torn;
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_THAT(outcome.blocks[i].state, ::testing::AnyOf(BlockState::kDone, BlockState::kExpired));
    (outcome.blocks[i].state == BlockState::kDone ? moved : torn).push_back(pairs[i]);
  }
  EXPECT_EQ(outcome.all_done(), torn.empty());
  between.expect_moved(moved, torn);
}

TEST_P(ExecutorConformanceTest, CancelledBlocksAreUntouchedAndTheOthersWhole) {
  const auto executor = make_executor();
  const Exchange between = exchange(64);
  std::vector<BlockPair> moved;
  for (std::uint32_t first = 0; first < 64; first += 16) {
    std::vector<BlockPair> pairs;
    for (std::uint32_t i = first; i < first + 16; ++i) {
      pairs.push_back({i, i});
    }
    std::promise<TransferOutcome> done;
    std::promise<void> settled;
    const Result<TransferId> id =
        executor->submit({.plan = between.plan(),
                          .blocks = blocks_of(pairs),
                          .done = [&](TransferOutcome&& outcome) { done.set_value(std::move(outcome)); },
                          .settled = [&] { settled.set_value(); }});
    ASSERT_TRUE(id.has_value());
    executor->cancel(*id);
    const TransferOutcome outcome = done.get_future().get();
    settled.get_future().get();
    executor->cancel(*id);  // it has ended: no effect
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_THAT(outcome.blocks[i].state, ::testing::AnyOf(BlockState::kDone, BlockState::kCancelled));
      if (outcome.blocks[i].state == BlockState::kDone) {
        moved.push_back(pairs[i]);
      }
    }
  }
  between.expect_moved(moved);
}

TEST_P(ExecutorConformanceTest, CallbacksSubmitTheNextTransfer) {
  const auto executor = make_executor(1);
  const Exchange between = exchange();
  std::promise<void> over;
  std::uint32_t next = 0;
  std::vector<BlockPair> pairs;
  std::function<void()> submit = [&] {
    const std::uint32_t block = next++;
    pairs.push_back({block, block});
    const Result<TransferId> id =
        executor->submit({.plan = between.plan(),
                          .blocks = {{.pair = {block, block}}},
                          .done = [](TransferOutcome&& outcome) { EXPECT_TRUE(outcome.all_done()); },
                          .settled =
                              [&] {
                                if (next == 16) {
                                  over.set_value();
                                } else {
                                  submit();
                                }
                              }});
    EXPECT_TRUE(id.has_value()) << (id.has_value() ? "" : id.error().to_string());
  };
  submit();
  over.get_future().get();
  between.expect_moved(pairs);
}

TEST_P(ExecutorConformanceTest, DestructionReportsEverythingAndLeavesNothingInFlight) {
  const Exchange between = exchange(64);
  auto executor = make_executor();
  int done = 0;
  int settled = 0;
  std::vector<BlockPair> moved;
  // A callback that submits the same once more finds the executor at work or ending.
  const auto again = [&, raw = executor.get()](const std::vector<BlockPair>& pairs) {
    const Result<TransferId> id =
        raw->submit({.plan = between.plan(), .blocks = blocks_of(pairs), .done = [](TransferOutcome&& /*outcome*/) {}});
    EXPECT_TRUE(id.has_value() || id.error().code == ErrorCode::kFailedPrecondition ||
                id.error().code == ErrorCode::kExhausted);
  };
  for (std::uint32_t first = 0; first < 64; first += 4) {
    const std::vector<BlockPair> pairs = {
        {first, first}, {first + 1, first + 1}, {first + 2, first + 2}, {first + 3, first + 3}};
    const auto tell = [&, pairs](TransferOutcome&& outcome) {
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        EXPECT_THAT(outcome.blocks[i].state, ::testing::AnyOf(BlockState::kDone, BlockState::kCancelled));
        if (outcome.blocks[i].state == BlockState::kDone) {
          moved.push_back(pairs[i]);
        }
      }
      ++done;
      again(pairs);
    };
    ASSERT_TRUE(
        executor
            ->submit({.plan = between.plan(), .blocks = blocks_of(pairs), .done = tell, .settled = [&] { ++settled; }})
            .has_value());
  }
  executor.reset();
  EXPECT_EQ(done, 16);
  EXPECT_EQ(settled, 16);
  between.expect_moved(moved);
}

TEST_P(ExecutorConformanceTest, ManyThreadsSubmitAtOnce) {
  const auto executor = make_executor(8);
  const Exchange between = exchange(64);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < 16; ++i) {
        const std::uint32_t block = thread * 16 + i;
        std::promise<bool> done;
        Transfer transfer{.plan = between.plan(),
                          .blocks = {{.pair = {block, block}, .tag = {block, 1}}},
                          .verify = Verify::kCheck,
                          .done = [&](TransferOutcome&& outcome) { done.set_value(outcome.all_done()); }};
        transfer.blocks[0].expected = between.checksum(block, {block, 1});
        while (!executor->submit(std::move(transfer)).has_value()) {
          std::this_thread::yield();
        }
        wrong += done.get_future().get() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
  std::vector<BlockPair> pairs(64);
  for (std::uint32_t i = 0; i < 64; ++i) {
    pairs[i] = {i, i};
  }
  between.expect_moved(pairs);
}

TEST_P(ExecutorConformanceTest, SaysHowItWorks) { EXPECT_NE(make_executor()->describe(), ""); }

}  // namespace cairn::testing
