// The manager in virtual time: registered blocks are offloaded, offloaded blocks are loaded, and control calls
// meanwhile.
#include "cairn/manager/kv_block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cairn/layout/layout_testing.h"
#include "cairn/manager/manager_testing.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// While it exists, no file can be written beyond so many bytes.
class WriteLimit {
 public:
  explicit WriteLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~WriteLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  WriteLimit(const WriteLimit&) = delete;
  WriteLimit& operator=(const WriteLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class KvBlockManagerTest : public ::testing::Test {
 protected:
  [[nodiscard]] ManagerConfig config(std::uint32_t device = 8, std::uint32_t host = 16, std::uint32_t disk = 16) const {
    return reference_config(folder_.in("blocks"), device, host, disk);
  }
  TestFolder folder_;
};

// A load, and its outcome once the manager is idle.
std::optional<LoadOutcome> load_now(VirtualManager& manager, LoadRequest request) {
  std::optional<LoadOutcome> loaded;
  request.done = [&loaded](LoadOutcome&& result) { loaded.emplace(std::move(result)); };
  EXPECT_TRUE(manager->load(std::move(request)).has_value());
  manager.settle();
  return loaded;
}

// Seed 002's test_offload.
TEST_F(KvBlockManagerTest, ARegisteredBlockIsOnHostAndDiskWithItsBytes) {
  VirtualManager manager(config(), {.bytes_per_second = 1e6});
  EXPECT_EQ(manager->worker_id(), 1337U);
  EXPECT_EQ(manager->block_size(), 4U);
  const Keys keys = chain(1, 1);
  const ImmutableBlocks device = compute(*manager, keys);
  manager.advance(milliseconds(100));
  const ImmutableBlocks host = manager->host()->match_prefix(keys);
  ASSERT_EQ(host.size(), 1U);
  EXPECT_TRUE(hold_their_bytes(*manager, host));
  const ImmutableBlocks disk = manager->disk()->match_prefix(keys);
  ASSERT_EQ(disk.size(), 1U);
  // The file's bytes are checked on the device, after all tiers above were reset.
  EXPECT_EQ(manager->status().offload[1].copied, 1U);
}

TEST_F(KvBlockManagerTest, WhatIsOnlyOnDiskComesBackWithItsBytes) {
  VirtualManager manager(config());
  const Keys keys = chain(1, 4);
  cache_on_device(*manager, keys);
  manager.settle();
  EXPECT_EQ(manager->reset(CacheLevel::kG1)->reset, 4U);
  EXPECT_EQ(manager->reset(CacheLevel::kG2)->reset, 4U);
  EXPECT_THAT(manager->locate(keys).levels,
              ElementsAre(CacheLevel::kG3, CacheLevel::kG3, CacheLevel::kG3, CacheLevel::kG3));
  const std::optional<LoadOutcome> loaded = load_now(manager, {.keys = keys});
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 4U);
  EXPECT_EQ(loaded->from[index_of(CacheLevel::kG3)], 4U);
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
  EXPECT_EQ(manager->host()->count_prefix(keys), 4U);  // being copied
}

// Another grid of ranks, or an earlier version, had other headers.
TEST_F(KvBlockManagerTest, ADiskSizeIsThatOfTheFileAndAFileOfNearlyThatSizeIsKept) {
  ManagerConfig sized = config();
  sized.disk.blocks = 0;
  sized.disk.size = 16 << 20;
  {
    VirtualManager manager(sized);
    EXPECT_EQ(manager->disk()->capacity(), (14 << 20) / 4096U);
    EXPECT_EQ(std::filesystem::file_size(sized.disk.path), sized.disk.size);
    cache_on_device(*manager, chain(1, 5));
    manager.settle();
  }
  sized.disk.size += 300'000;
  {
    VirtualManager manager(sized);
    EXPECT_EQ(manager->disk()->capacity(), (14 << 20) / 4096U);
    EXPECT_EQ(manager->status().tiers[2].recovered.blocks, 5U);
  }
  sized.disk.size += 100'000;  // 2.4 % more than the file has
  const Result<KvBlockManager> other = KvBlockManager::make(sized);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("3584"));
}

TEST_F(KvBlockManagerTest, OutlivesTheProcess) {
  const Keys keys = chain(1, 5);
  {
    VirtualManager manager(config());
    cache_on_device(*manager, keys);
    manager.settle();
  }
  VirtualManager again(config());
  EXPECT_EQ(again->status().tiers[2].recovered.blocks, 5U);
  EXPECT_TRUE(again->status().tiers[2].recovered.clean);
  EXPECT_EQ(again->status().tiers[2].path, again->config().disk.path);
  EXPECT_EQ(again->status().tiers[1].path, "");
  const std::optional<LoadOutcome> loaded = load_now(again, {.keys = keys});
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 5U);
  EXPECT_TRUE(hold_their_bytes(*again, loaded->blocks));
}

TEST_F(KvBlockManagerTest, AFlippedBitOnDiskIsAMissAndAnIncident) {
  const Keys keys = chain(1, 3);
  std::vector<Incident> incidents;
  VirtualManager manager(config(), {},
                         {.on_incident = [&](const Incident& incident) { incidents.push_back(incident); }});
  cache_on_device(*manager, keys);
  manager.settle();
  (void)manager->reset(CacheLevel::kG1);
  (void)manager->reset(CacheLevel::kG2);
  {
    const ImmutableBlocks second = manager->disk()->match_prefix(first_of(keys, 2));
    const BlockLayout::Address at =
        manager->layout(CacheLevel::kG3)->address(index_of(second.block_ids()[1]), 1, 0, 2, 1);
    std::fstream file(folder_.in("blocks"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at.offset));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at.offset));
    file.put(byte);
  }
  const std::optional<LoadOutcome> loaded = load_now(manager, {.keys = keys});
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 1U);
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
  EXPECT_FALSE(manager->disk()->contains(keys[1]));
  ASSERT_THAT(incidents, SizeIs(1));
  EXPECT_EQ(incidents[0].kind, Incident::Kind::kWrongBytes);
  EXPECT_EQ(incidents[0].level, CacheLevel::kG3);
  EXPECT_THAT(incidents[0].text, HasSubstr(keys[1].to_string()));
  EXPECT_EQ(manager->status().incident_count, 1U);
}

TEST_F(KvBlockManagerTest, AheadOfNeedNothingIsLostAndNothingWaits) {
  ManagerConfig ahead = config(16, 64, 0);
  ahead.offload_to_host = {.mode = OffloadMode::kAhead, .low_water = 0.25, .batch = 4};
  VirtualManager manager(ahead);
  for (std::uint64_t i = 0; i < 16; ++i) {
    cache_on_device(*manager, chain(i, 2));
    manager.settle();
  }
  for (std::uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(manager->locate(chain(i, 2)).blocks(), 2U) << i;
  }
  const PoolCounts counts = manager->device()->counts();
  EXPECT_GE(counts.free + counts.ready, 4U);
}

TEST_F(KvBlockManagerTest, OnboardBlocksThatTheCallerHolds) {
  VirtualManager manager(config());
  const Keys keys = chain(1, 3);
  cache_on_device(*manager, keys);
  manager.settle();
  (void)manager->reset(CacheLevel::kG1);
  OutcomeWaiter<ImmutableBlocks> onboarded(*manager);
  ASSERT_TRUE(
      manager->onboard_blocks({.blocks = manager->host()->match_prefix(keys), .done = onboarded.done()}).has_value());
  manager.settle();
  const Result<ImmutableBlocks> up = onboarded.wait();
  ASSERT_TRUE(up.has_value());
  EXPECT_EQ(up->size(), 3U);
  EXPECT_TRUE(hold_their_bytes(*manager, *up));
  OutcomeWaiter<ImmutableBlocks> nothing(*manager);
  ASSERT_TRUE(manager->onboard_blocks({.blocks = {}, .done = nothing.done()}).has_value());
  EXPECT_EQ(nothing.wait()->size(), 0U);
}

TEST_F(KvBlockManagerTest, PrefetchFromDiskToHost) {
  VirtualManager manager(config());
  const Keys keys = chain(1, 3);
  cache_on_device(*manager, keys);
  manager.settle();
  (void)manager->reset(CacheLevel::kG1);
  (void)manager->reset(CacheLevel::kG2);
  OutcomeWaiter<std::uint32_t> prefetched(*manager);
  ASSERT_TRUE(manager->prefetch({.keys = keys, .done = prefetched.done()}).has_value());
  manager.settle();
  EXPECT_EQ(*prefetched.wait(), 3U);
  EXPECT_TRUE(hold_their_bytes(*manager, manager->host()->match_prefix(keys)));
}

TEST_F(KvBlockManagerTest, AWaiterPumpsAndDoesNotWaitForTheClock) {
  VirtualManager manager(config());
  const Keys keys = chain(1, 2);
  cache_on_device(*manager, keys);
  OutcomeWaiter<LoadOutcome> at_once(*manager);
  ASSERT_TRUE(manager->load({.keys = keys, .done = at_once.done()}).has_value());
  EXPECT_EQ(at_once.wait()->prefix, 2U);
  manager.settle();
  (void)manager->reset(CacheLevel::kG1);
  OutcomeWaiter<LoadOutcome> later(*manager);
  ASSERT_TRUE(manager->load({.keys = keys, .done = later.done()}).has_value());
  EXPECT_EQ(later.wait().error().code, ErrorCode::kUnavailable);
  manager.settle();
  EXPECT_EQ(later.wait()->prefix, 2U);
}

TEST_F(KvBlockManagerTest, AWaiterForARefusedRequestReturns) {
  VirtualManager manager(config());
  OutcomeWaiter<OffloadOutcome> refused(*manager);
  EXPECT_FALSE(manager->offload(CacheLevel::kG4, {.keys = chain(1, 2), .done = refused.done()}).has_value());
  EXPECT_EQ(refused.wait().error().code, ErrorCode::kUnavailable);
}

TEST_F(KvBlockManagerTest, ResetsAreReportedAndLeaveBlocksInUseToTheirHolders) {
  VirtualManager manager(config());
  ResetReceiver receiver = manager->resets();
  const ImmutableBlocks held = compute(*manager, chain(1, 2));
  cache_on_device(*manager, chain(2, 3));
  manager.settle();
  const ResetReport report = *manager->reset(CacheLevel::kG1);
  EXPECT_EQ(report.reset, 3U);
  EXPECT_EQ(report.in_use, 2U);
  EXPECT_EQ(report.tiers[0].dropped, 3U);
  EXPECT_EQ(manager->device()->counts().registered, 0U);
  EXPECT_TRUE(hold_their_bytes(*manager, held));
  EXPECT_EQ(receiver.try_next(), CacheLevel::kG1);
  EXPECT_EQ(receiver.try_next(), std::nullopt);
  EXPECT_EQ(manager->reset(CacheLevel::kG2, chain(2, 1)).reset, 1U);
  EXPECT_EQ(manager->host()->counts().registered, 4U);
  EXPECT_EQ(manager->reset_all()->reset, 9U);
  EXPECT_EQ(manager->host()->counts().registered, 0U);
  EXPECT_EQ(manager->disk()->counts().registered, 0U);
}

TEST_F(KvBlockManagerTest, WhatWasResetOnDiskDoesNotComeBackAfterARestart) {
  {
    VirtualManager manager(config());
    cache_on_device(*manager, chain(1, 2));
    cache_on_device(*manager, chain(2, 3));
    manager.settle();
    EXPECT_EQ(manager->reset(CacheLevel::kG3, chain(1, 2)).reset, 2U);
  }
  VirtualManager again(config());
  EXPECT_EQ(again->disk()->counts().registered, 3U);
  EXPECT_EQ(again->disk()->count_prefix(chain(2, 3)), 3U);
}

TEST_F(KvBlockManagerTest, PausedLinksDoNotMove) {
  VirtualManager manager(config());
  ASSERT_TRUE(manager->pause(CacheLevel::kG1, CacheLevel::kG2).has_value());
  cache_on_device(*manager, chain(1, 2));
  manager.advance(seconds(1));
  EXPECT_EQ(manager->host()->counts().registered, 0U);
  ASSERT_TRUE(manager->resume(CacheLevel::kG1, CacheLevel::kG2).has_value());
  cache_on_device(*manager, chain(2, 2));
  manager.settle();
  EXPECT_EQ(manager->host()->count_prefix(chain(2, 2)), 2U);
  EXPECT_EQ(manager->pause(CacheLevel::kG1, CacheLevel::kG4).error().code, ErrorCode::kNotFound);
}

TEST_F(KvBlockManagerTest, TheHostTierIsResizedWhileInUse) {
  VirtualManager manager(config());
  cache_on_device(*manager, chain(1, 6));
  manager.settle();
  ImmutableBlocks held = manager->host()->match_prefix(chain(1, 6));
  ASSERT_TRUE(manager->resize_host(4).has_value());
  TierStatus host = manager->status().tiers[1];
  EXPECT_EQ(host.withheld, 10U);
  EXPECT_EQ(host.to_withhold, 2U);
  held = {};
  manager.advance(milliseconds(100));
  host = manager->status().tiers[1];
  EXPECT_EQ(host.withheld, 12U);
  EXPECT_EQ(host.to_withhold, 0U);
  EXPECT_EQ(host.counts.registered, 4U);
  ASSERT_TRUE(manager->resize_host(16).has_value());
  EXPECT_EQ(manager->status().tiers[1].withheld, 0U);
  EXPECT_EQ(manager->resize_host(0).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(manager->resize_host(17).error().code, ErrorCode::kOutOfRange);
  // Blocks in pages that were released before are as good as any.
  cache_on_device(*manager, chain(5, 8));
  manager.settle();
  EXPECT_TRUE(hold_their_bytes(*manager, manager->host()->match_prefix(chain(5, 8))));
}

TEST_F(KvBlockManagerTest, AnyTierMayBeMissing) {
  {
    VirtualManager manager(config(8, 0, 16));  // straight to disk and back
    const Keys keys = chain(1, 2);
    cache_on_device(*manager, keys);
    manager.settle();
    (void)manager->reset(CacheLevel::kG1);
    const std::optional<LoadOutcome> loaded = load_now(manager, {.keys = keys});
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->prefix, 2U);
    EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
    EXPECT_EQ(manager->host(), nullptr);
    EXPECT_EQ(manager->resize_host(1).error().code, ErrorCode::kNotFound);
  }
  {
    VirtualManager manager(config(8, 0, 0));
    cache_on_device(*manager, chain(1, 2));
    manager.settle();
    EXPECT_EQ(load_now(manager, {.keys = chain(1, 2)})->prefix, 2U);
    EXPECT_EQ(manager->offload(CacheLevel::kG2, {.keys = chain(1, 2)}).error().code, ErrorCode::kNotFound);
  }
  {
    VirtualManager manager(config(0, 16, 16));  // its first blocks were written by the managers before
    EXPECT_EQ(manager->device(), nullptr);
    OutcomeWaiter<std::uint32_t> prefetched(*manager);
    ASSERT_TRUE(manager->prefetch({.keys = chain(1, 2), .done = prefetched.done()}).has_value());
    manager.settle();
    EXPECT_EQ(*prefetched.wait(), 2U);
  }
}

// An engine's own tensors, one a layer.
struct EngineMemory {
  explicit EngineMemory(const ManagerConfig& config, std::uint32_t blocks)
      : memory(
            TestLayout::make({.shape = config.shape(), .arrangement = Arrangement::kLayersKvHnd, .blocks = blocks})) {}
  TestLayout memory;
};

TEST_F(KvBlockManagerTest, TheDeviceMayBeTheEnginesMemory) {
  ManagerConfig engine = config(0);
  const EngineMemory tensors(engine, 8);
  engine.device.engine_layout = tensors.memory.layout();
  VirtualManager manager(engine);
  const Keys keys = chain(1, 3);
  cache_on_device(*manager, keys);
  manager.settle();
  (void)manager->reset(CacheLevel::kG1);
  const std::optional<LoadOutcome> loaded = load_now(manager, {.keys = keys});
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 3U);
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
}

TEST_F(KvBlockManagerTest, TheEngineMayAlsoSayWhichBlockHoldsWhat) {
  ManagerConfig engine = config(0);
  const EngineMemory tensors(engine, 8);
  engine.device.engine_layout = tensors.memory.layout();
  engine.device.managed_by_engine = true;
  VirtualManager manager(engine);
  EXPECT_EQ(manager->device(), nullptr);
  const Keys keys = chain(1, 2);
  EngineBlocks saved{.block_ids = {BlockId{5}, BlockId{2}},
                     .facts = {{.block = {.key = keys[0]}}, {.block = {.key = keys[1]}}}};
  write_pattern(*tensors.memory.layout(), 5, seed_of(keys[0]));
  write_pattern(*tensors.memory.layout(), 2, seed_of(keys[1]));
  const auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> is_held = held;
  saved.held = held;
  std::optional<OffloadOutcome> outcome;
  ASSERT_TRUE(manager
                  ->offload(CacheLevel::kG2, std::move(saved),
                            {.keys = keys, .done = [&](OffloadOutcome&& result) { outcome = result; }})
                  .has_value());
  manager.settle();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->is_below, ElementsAre(true, true));
  EXPECT_TRUE(hold_their_bytes(*manager, manager->host()->match_prefix(keys)));

  std::optional<LoadOutcome> loaded;
  ASSERT_TRUE(manager
                  ->load_into({.block_ids = {BlockId{0}, BlockId{7}}},
                              {.keys = keys, .done = [&](LoadOutcome&& result) { loaded.emplace(std::move(result)); }})
                  .has_value());
  manager.settle();
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 2U);
  EXPECT_EQ(find_stranger(*tensors.memory.layout(), 0, seed_of(keys[0])), std::nullopt);
  EXPECT_EQ(find_stranger(*tensors.memory.layout(), 7, seed_of(keys[1])), std::nullopt);
  EXPECT_EQ(is_held.use_count(), 1);  // only by this test
}

TEST_F(KvBlockManagerTest, ADiskThatFailsIsSuspendedReportedAndResumed) {
  ManagerConfig failing = config(8, 0, 16);
  failing.health = {.failures = 2, .first_wait = milliseconds(100), .longest_wait = seconds(1)};
  std::vector<Incident::Kind> kinds;
  ManagerParts parts;
  parts.on_incident = [&kinds](const Incident& incident) { kinds.push_back(incident.kind); };
  VirtualManager manager(failing, {}, parts);
  cache_on_device(*manager, chain(1, 2));
  manager.settle();
  ASSERT_EQ(manager->disk()->counts().registered, 2U);
  // Its file can no longer be written: the process may write nothing beyond the first bytes.
  for (std::uint64_t i = 2; i < 5; ++i) {
    const WriteLimit limit(64);
    cache_on_device(*manager, chain(i, 1));
    manager.settle();
  }
  EXPECT_THAT(kinds, ElementsAre(Incident::Kind::kTierOut));
  EXPECT_FALSE(manager->status().tiers[1].writing.is_up);
  // Reading still works.
  (void)manager->reset(CacheLevel::kG1);
  EXPECT_EQ(load_now(manager, {.keys = chain(1, 2)})->prefix, 2U);
  manager.advance(milliseconds(150));
  cache_on_device(*manager, chain(9, 1));
  manager.settle();
  EXPECT_THAT(kinds, ElementsAre(Incident::Kind::kTierOut, Incident::Kind::kTierBack));
  EXPECT_EQ(manager->disk()->count_prefix(chain(9, 1)), 1U);
}

TEST_F(KvBlockManagerTest, TellsOfEventsByTier) {
  VirtualManager manager(config());
  cache_on_device(*manager, chain(1, 2));
  manager.settle();
  const Result<EventBatch> events = manager->events()->read(1, 100);
  ASSERT_TRUE(events.has_value());
  std::vector<CacheLevel> tiers;
  for (const Event& event : std::get<std::vector<Event>>(*events)) {
    tiers.push_back(event.tier);
  }
  EXPECT_THAT(tiers, ElementsAre(CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3));
}

TEST_F(KvBlockManagerTest, ShowsItselfInMetrics) {
  VirtualManager manager(config());
  cache_on_device(*manager, chain(1, 2));
  manager.settle();
  (void)load_now(manager, {.keys = chain(1, 3)});
  const std::string text = manager->metrics().to_prometheus();
  for (const char* line :
       {"cairn_blocks_registered{tier=\"G2\"} 2\n", "cairn_copied_blocks_total{link=\"G1-G2\"} 2\n",
        "cairn_verification_failures_total{link=\"G3-G2\"} 0\n", "cairn_load_hits_total{tier=\"G1\"} 2\n",
        "cairn_load_misses_total 1\n", "cairn_offload_refused_total{into=\"G2\",reason=\"already_below\"}",
        "cairn_tier_up{tier=\"G3\",use=\"reading\"} 1\n", "cairn_load_seconds_count 1\n",
        "cairn_copy_seconds_count{link=\"G1-G2\"}"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(KvBlockManagerTest, SaysWhichKeyIsWrong) {
  ManagerConfig wrong = config();
  wrong.disk.path = folder_.in("no/such/folder/blocks");
  Result<KvBlockManager> made = KvBlockManager::make(wrong, {.own_thread = false});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("disk.path"));
  wrong.disk.path = folder_.in(std::string(300, 'x'));
  made = KvBlockManager::make(wrong, {.own_thread = false});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("File name too long"));
  wrong = config();
  wrong.block_size = 0;
  made = KvBlockManager::make(wrong, {.own_thread = false});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("block_size"));
}

// --- keys ---

BlockKey key_of(const KeyHasher& hasher) {
  const std::vector<Token> tokens(kBlockSize, 7);
  return TokenBlockSequence::create(tokens, kBlockSize, hasher)->keys()[0];
}

TEST_F(KvBlockManagerTest, KeysAreTheSameAfterARestartWithAFileAndOthersWithout) {
  const auto key_with = [](const ManagerConfig& config) { return key_of(VirtualManager(config)->hasher()); };
  const BlockKey first = key_with(config());
  EXPECT_EQ(key_with(config()), first) << "the file has the secret";
  EXPECT_EQ(std::filesystem::status(config().disk.path).permissions(), std::filesystem::perms(0600));
  ManagerConfig fresh = config();
  fresh.disk.opening = DiskOpening::kFresh;
  EXPECT_NE(key_with(fresh), first) << "a new file, a new secret";
  EXPECT_NE(key_with(config(8, 16, 0)), key_with(config(8, 16, 0)))
      << "without a file the secret ends with the process";
  ManagerConfig given = config(8, 16, 0);
  given.model.secret = std::string(64, '7');
  EXPECT_EQ(key_with(given), key_with(given));
  ManagerConfig tenant = given;
  tenant.model.tenant = "acme";
  EXPECT_NE(key_with(given), key_with(tenant)) << "each tenant has its own keys";
}

TEST_F(KvBlockManagerTest, AnotherSecretThanTheFilesIsRefused) {
  ManagerConfig given = config();
  given.model.secret = std::string(64, '7');
  const BlockKey key = key_of(VirtualManager(given)->hasher());
  EXPECT_EQ(key_of(VirtualManager(config())->hasher()), key) << "without one, the file's is used";
  ManagerConfig other = given;
  other.model.secret = std::string(64, '8');
  const Result<KvBlockManager> made = KvBlockManager::make(other);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(made.error().message, HasSubstr("another key secret"));
  EXPECT_THAT(made.error().message, ::testing::Not(HasSubstr("8888")));
  other.model.secret.clear();
  other.model.secret_file = config().disk.path + ".none";
  EXPECT_THAT(KvBlockManager::make(other).error().message, HasSubstr("model.secret_file: cannot open"));
}

TEST_F(KvBlockManagerTest, TheSchemeSelectsTheHash) {
  ManagerConfig any = config(8, 16, 0);
  any.model.scheme = KeyScheme::kDynamo;
  const std::vector<Token> tokens(kBlockSize, 7);
  EXPECT_EQ(value_of(key_of(VirtualManager(any)->hasher()).sequence_hash()), value_of(hash_block(tokens, kNoSalt)));
  for (const KeyScheme scheme : kAllSchemes) {
    any.model.scheme = scheme;
    EXPECT_EQ(VirtualManager(any)->hasher().scheme(), scheme);
  }
  EXPECT_EQ(ManagerConfig().model.scheme, KeyScheme::kNative);
}

TEST_F(KvBlockManagerTest, AFileOfAnotherModelIsRefusedByName) {
  {
    VirtualManager manager(config());
  }
  ManagerConfig other = config();
  other.model.name = "another";
  const Result<KvBlockManager> made = KvBlockManager::make(other, {.own_thread = false});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("another"));
  // It is replaced if the configuration says so.
  other.disk.opening = DiskOpening::kFresh;
  VirtualManager fresh(other);
  EXPECT_EQ(fresh->disk()->counts().registered, 0U);
}

TEST_F(KvBlockManagerTest, ATruncatedFileIsUsedAsFarAsItGoes) {
  const Keys keys = chain(1, 6);
  {
    VirtualManager manager(config());
    cache_on_device(*manager, keys);
    manager.settle();
    ASSERT_EQ(manager->disk()->counts().registered, 6U);
  }
  const std::string path = config().disk.path;
  const auto whole = std::filesystem::file_size(path);
  std::size_t left = 0;
  {
    DiskFile file = *DiskFile::inspect(path);
    const DiskRecovery recovery = *file.recover();
    for (const DiskEntry& entry : recovery.entries) {
      left += index_of(entry.block_id) < 2 ? 1 : 0;
    }
    // The middle of the third block.
    std::filesystem::resize_file(path, file.data_offset() + 2 * file.block_step() + 10);
  }
  ASSERT_GT(left, 0U);
  ManagerConfig strict = config();
  strict.disk.opening = DiskOpening::kExisting;
  const Result<KvBlockManager> refused = KvBlockManager::make(strict, {.own_thread = false});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr(path), HasSubstr("was cut off")));

  std::vector<Incident> incidents;
  VirtualManager manager(config(), {}, {.on_incident = [&](const Incident& each) { incidents.push_back(each); }});
  EXPECT_EQ(std::filesystem::file_size(path), whole);
  EXPECT_EQ(manager->disk()->counts().registered, left);
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].kind, Incident::Kind::kDamagedFile);
  EXPECT_THAT(incidents[0].text, AllOf(HasSubstr(path), HasSubstr("was cut off"), HasSubstr("blocks were cut off")));
  EXPECT_EQ(manager->status().tiers[2].recovered.cut_off, 6 - left);
  EXPECT_THAT(manager->metrics().to_prometheus(), HasSubstr("cairn_disk_file_damaged{tier=\"G3\"} 1\n"));
  cache_on_device(*manager, keys);
  manager.settle();
  EXPECT_EQ(manager->disk()->counts().registered, 6U) << "the tier works";
  ASSERT_TRUE(manager->reset(CacheLevel::kG1));
  ASSERT_TRUE(manager->reset(CacheLevel::kG2));
  const std::optional<LoadOutcome> loaded = load_now(manager, {.keys = keys});
  ASSERT_TRUE(loaded && loaded->blocks.size() == 6U);
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
}

TEST_F(KvBlockManagerTest, AFileThatCannotBeReadIsRenamedAndTheTierStartsEmpty) {
  {
    VirtualManager manager(config());
    cache_on_device(*manager, chain(1, 4));
    manager.settle();
  }
  const std::string path = config().disk.path;
  {
    std::ofstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(8192, '#');  // both superblocks
  }
  std::vector<Incident> incidents;
  VirtualManager manager(config(), {}, {.on_incident = [&](const Incident& each) { incidents.push_back(each); }});
  EXPECT_EQ(manager->disk()->counts().registered, 0U);
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].kind, Incident::Kind::kDamagedFile);
  EXPECT_THAT(incidents[0].text, HasSubstr("it was renamed to " + path + ".damaged, and the tier starts empty"));
  EXPECT_TRUE(std::filesystem::exists(path + ".damaged"));
  EXPECT_EQ(manager->status().incidents.size(), 1U);
}

TEST_F(KvBlockManagerTest, AScrubFindsFlippedBitsInUnreadBlocks) {
  ManagerConfig scrubbed = config();
  scrubbed.disk.scrub_rate = 1'000'000;
  std::vector<Incident> incidents;
  VirtualManager manager(scrubbed, {}, {.on_incident = [&](const Incident& each) { incidents.push_back(each); }});
  const Keys keys = chain(1, 6);
  cache_on_device(*manager, keys);
  manager.advance(seconds(2));
  ASSERT_EQ(manager->disk()->counts().registered, 6U);
  EXPECT_TRUE(incidents.empty());
  const BlockId block_id = manager->disk()->hold(std::vector{keys[3]}).block_ids()[0];
  {
    const DiskGeometry geometry{.space = scrubbed.space(),
                                .block_bytes = scrubbed.shape().block_bytes(),
                                .row_bytes = scrubbed.shape().row_bytes(),
                                .blocks = scrubbed.disk.blocks};
    const auto at = geometry.places()->data_offset + index_of(block_id) * geometry.places()->block_step + 17;
    std::fstream file(scrubbed.disk.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  manager.advance(seconds(120));
  EXPECT_FALSE(manager->disk()->contains(keys[3]));
  EXPECT_EQ(manager->disk()->counts().registered, 5U);
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].kind, Incident::Kind::kWrongBytes);
  EXPECT_THAT(incidents[0].text, HasSubstr(keys[3].to_string()));
  ASSERT_TRUE(manager->status().scrub.has_value());
  EXPECT_EQ(manager->status().scrub->damaged, 1U);
  EXPECT_GE(manager->status().scrub->passes, 2U);
  const std::string text = manager->metrics().to_prometheus();
  for (const char* line : {"cairn_scrub_damaged_total 1\n", "cairn_scrub_bytes_total ", "cairn_scrub_blocks_total ",
                           "cairn_scrub_passes_total ", "cairn_scrub_position "}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_FALSE(VirtualManager(config(8, 16, 0))->status().scrub.has_value()) << "off by default";
}

TEST_F(KvBlockManagerTest, TwoManagersDoNotShareAFile) {
  VirtualManager manager(config());
  const Result<KvBlockManager> second = KvBlockManager::make(config(), {.own_thread = false});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("disk.path"));
  const std::string path = config().disk.path;
  EXPECT_THAT(second.error().message, HasSubstr("data parallel ranks of an engine (such as " + path + ".dp0 and"));
}

TEST_F(KvBlockManagerTest, ADataParallelRankIsInStatusAndMetrics) {
  ManagerConfig ranked = config();
  ranked.dp_rank = 2;
  VirtualManager manager(ranked);
  EXPECT_EQ(manager->dp_rank(), 2U);
  EXPECT_EQ(manager->status().dp_rank, 2U);
  const std::string text = manager->metrics().to_prometheus();
  EXPECT_THAT(text, HasSubstr("cairn_blocks_registered{dp_rank=\"2\",tier=\"G2\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_misses_total{dp_rank=\"2\"} 0\n"));
}

TEST_F(KvBlockManagerTest, DurationsBeyondTheClockLastForever) {
  for (const Duration extreme :
       {Duration::max(), Duration(std::int64_t{1} << 62), Duration(std::chrono::hours(1000000))}) {
    ManagerConfig forever = config();
    forever.onboard.deadline = extreme;
    forever.offload_to_host.deadline = extreme;
    forever.offload_to_disk.deadline = extreme;
    forever.disk.opening = DiskOpening::kFresh;
    VirtualManager manager(forever);
    const Keys keys = chain(1, 3);
    cache_on_device(*manager, keys);
    manager.advance(seconds(1));
    EXPECT_TRUE(manager->drain(extreme).has_value());
    EXPECT_EQ(manager->disk()->counts().registered, 3U) << "copies had time enough";
    for (const std::optional<TimePoint> deadline : {std::optional<TimePoint>(), std::optional(TimePoint::max())}) {
      (void)manager->reset(CacheLevel::kG1);
      std::optional<std::uint32_t> prefix;
      ASSERT_TRUE(manager
                      ->load({.keys = keys,
                              .deadline = deadline,
                              .done = [&prefix](LoadOutcome&& result) { prefix = result.prefix; }})
                      .has_value());
      manager.advance(seconds(1));
      EXPECT_EQ(prefix, 3U);
    }
    std::optional<std::uint32_t> late;
    ASSERT_TRUE(manager
                    ->load({.keys = chain(1, 3),
                            .deadline = TimePoint::min(),
                            .done = [&late](LoadOutcome&& result) { late = result.prefix; }})
                    .has_value());
    manager.advance(seconds(1));
    EXPECT_TRUE(late.has_value()) << "a deadline that has passed ends the load";
  }
}

// Without a connector: a program that reports what its engine computes.
TEST_F(KvBlockManagerTest, LoadsAreWeighedOnceIterationsAreReported) {
  // 1 s a block.
  VirtualManager manager(reference_config(folder_.in("blocks"), 8, 16, 0), {.bytes_per_second = 768});
  const Keys keys = chain(1, 4);
  cache_on_device(*manager, keys);
  manager.advance(std::chrono::seconds(10));
  const auto worth = [&] {
    PrefixLocation found;
    found.levels.assign(4, CacheLevel::kG2);
    return manager->worth_loading(found, {}).blocks;
  };
  EXPECT_EQ(worth(), 4U) << "nothing is known of the engine";
  EXPECT_EQ(manager->status().prefill.source, PrefillStatus::Source::kUnknown);
  ASSERT_TRUE(manager->reset(CacheLevel::kG1).has_value());
  ASSERT_TRUE(manager->load({.keys = keys, .deadline = TimePoint::max()}).has_value());
  manager.advance(std::chrono::seconds(10));
  EngineIteration iteration;
  iteration.add_prefill(0, 1000);
  iteration.duration = std::chrono::milliseconds(50);
  for (int i = 0; i < 20; ++i) {
    manager->report(iteration);
  }
  EXPECT_EQ(worth(), 0U);
  EXPECT_EQ(manager->status().prefill.source, PrefillStatus::Source::kLearned);
  EXPECT_NEAR(manager->status().prefill.tokens_per_second, 20'000, 1'000);
  EXPECT_THAT(manager->metrics().to_prometheus(), HasSubstr("cairn_prefill_iterations_total 20"));
}

}  // namespace
}  // namespace cairn::testing
