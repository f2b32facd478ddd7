// Pages of the caller's memory in a manager with a host tier and a file, with its own thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/manager/manager_testing.h"
#include "cairn/transfer/fault_executor.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kPageBytes = 3 * 2 * kBlockSize * 2 * 8 * 2;  // as reference_config() says

TimePoint soon() { return steady_clock().now() + seconds(20); }

// Pages in memory of their own, each in several parts.
class Buffers {
 public:
  explicit Buffers(const Keys& keys, std::size_t parts = 2) : keys_(keys), bytes_(keys.size() * kPageBytes) {
    for (std::size_t i = 0; i < keys.size() * parts; ++i) {
      parts_.push_back(bytes_.data() + i * kPageBytes / parts);
      sizes_.push_back(kPageBytes / parts);
    }
  }
  Buffers& fill() {
    for (std::size_t page = 0; page < keys_.size(); ++page) {
      for (std::size_t i = 0; i < kPageBytes; ++i) {
        bytes_[page * kPageBytes + i] = expected(page, i);
      }
    }
    return *this;
  }
  [[nodiscard]] PageList list() const { return {.keys = keys_, .parts = parts_, .part_bytes = sizes_}; }
  [[nodiscard]] bool holds(std::size_t page) const {
    for (std::size_t i = 0; i < kPageBytes; ++i) {
      if (bytes_[page * kPageBytes + i] != expected(page, i)) {
        return false;
      }
    }
    return true;
  }
  std::vector<std::byte*> parts_;
  std::vector<std::uint64_t> sizes_;

 private:
  [[nodiscard]] std::byte expected(std::size_t page, std::size_t i) const {
    return static_cast<std::byte>(seed_of(keys_[page]) * 7 + i * 131 + i / 256);
  }
  Keys keys_;
  std::vector<std::byte> bytes_;
};

class PageCopiesThreadsTest : public ::testing::Test {
 protected:
  [[nodiscard]] ManagerConfig config(std::uint32_t host = 16, std::uint32_t disk = 64) const {
    ManagerConfig config = reference_config(folder_.in("blocks"), 0, host, disk);
    config.offload_to_disk.mode = OffloadMode::kOff;
    return config;
  }
  // Every page is either not fetched or right; how many were fetched.
  static std::size_t fetch_and_check(const KvBlockManager& manager, const Keys& keys) {
    const Buffers to(keys, 3);
    const Result<std::vector<bool>> fetched = manager.fetch_pages(to.list(), soon());
    EXPECT_TRUE(fetched.has_value());
    std::size_t right = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_TRUE(!(*fetched)[i] || to.holds(i)) << "page " << i << " has other bytes";
      right += (*fetched)[i] ? 1 : 0;
    }
    return right;
  }
  static void damage_host(const KvBlockManager& manager, const Keys& keys) {
    const ImmutableBlocks held = manager.host()->match_prefix(keys);
    const BlockLayoutPtr layout = manager.layout(CacheLevel::kG2);
    for (const BlockId id : held.block_ids()) {
      const BlockLayout::Address at = layout->address(index_of(id), 1, 1, 2, 1);
      layout->regions()[at.region]->base()[at.offset] ^= std::byte{4};
    }
  }
  // Flips a bit of every byte of the file behind its entries.
  void damage_file() const {
    std::fstream file(folder_.in("blocks"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto size = static_cast<std::size_t>(file.tellg());
    constexpr std::size_t kBlocks = std::size_t{2} << 20;
    ASSERT_GT(size, kBlocks);
    std::string bytes(size - kBlocks, '\0');
    file.seekg(kBlocks);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    for (char& byte : bytes) {
      byte = static_cast<char>(byte ^ 1);
    }
    file.seekp(kBlocks);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  TestFolder folder_;
};

TEST_F(PageCopiesThreadsTest, PagesComeBackFromMemoryFromDiskAndAfterARestart) {
  const Keys keys = chain(1, 40);  // more than the host tier holds
  {
    const KvBlockManager manager = *KvBlockManager::make(config());
    EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
    EXPECT_EQ(manager.disk()->count_prefix(keys), 40U) << "stored means on disk";
    EXPECT_EQ(manager.locate(keys).blocks(), 40U);
    EXPECT_EQ(fetch_and_check(manager, keys), 40U);
    ASSERT_TRUE(manager.reset(CacheLevel::kG2).has_value());
    EXPECT_EQ(fetch_and_check(manager, keys), 40U);
    EXPECT_THAT(manager.metrics().to_prometheus(), HasSubstr("cairn_pages_stored_total 40\n"));
  }
  const KvBlockManager manager = *KvBlockManager::make(config());
  EXPECT_EQ(manager.locate(keys).blocks(), 40U);
  EXPECT_EQ(fetch_and_check(manager, keys), 40U);
}

TEST_F(PageCopiesThreadsTest, ATierOfOneBlockIsEnough) {
  const KvBlockManager manager = *KvBlockManager::make(config(1));
  const Keys keys = chain(1, 5);
  EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
  EXPECT_EQ(fetch_and_check(manager, keys), 5U);
}

TEST_F(PageCopiesThreadsTest, WorksWithoutADisk) {
  const KvBlockManager manager = *KvBlockManager::make(config(16, 0));
  const Keys keys = chain(1, 10);
  EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
  EXPECT_EQ(manager.locate(keys).blocks(), 10U) << "blocks in host memory count, although there is no device";
  EXPECT_EQ(fetch_and_check(manager, keys), 10U);
  EXPECT_EQ(fetch_and_check(manager, chain(2, 4)), 0U);
}

TEST_F(PageCopiesThreadsTest, WhatIsStoredIsNotCopiedAgain) {
  const KvBlockManager manager = *KvBlockManager::make(config());
  Keys keys = chain(1, 6);
  keys.insert(keys.end(), keys.begin(), keys.begin() + 2);  // twice in one call
  EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
  const std::uint64_t allocated = manager.host()->stats().allocated;
  EXPECT_EQ(allocated, 6U);
  ASSERT_TRUE(manager.reset(CacheLevel::kG2).has_value());
  EXPECT_THAT(*manager.store_pages(Buffers(keys).list(), soon()), Each(true)) << "the bytes are not even looked at";
  EXPECT_EQ(manager.host()->stats().allocated, allocated);
  EXPECT_EQ(fetch_and_check(manager, keys), 8U);
}

TEST_F(PageCopiesThreadsTest, FlippedBitsInMemoryAreAMissUnlessTheDiskHasThePage) {
  const Keys keys = chain(1, 8);
  {
    const KvBlockManager manager = *KvBlockManager::make(config(16, 0));
    EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
    damage_host(manager, {keys.begin(), keys.begin() + 3});
    EXPECT_EQ(fetch_and_check(manager, keys), 5U);
    EXPECT_EQ(manager.locate(keys).blocks(), 0U) << "wrong pages are dropped";
    EXPECT_THAT(manager.metrics().to_prometheus(), HasSubstr("cairn_pages_wrong_total 3\n"));
  }
  const KvBlockManager manager = *KvBlockManager::make(config());
  EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
  damage_host(manager, keys);
  EXPECT_EQ(fetch_and_check(manager, keys), 8U);
}

TEST_F(PageCopiesThreadsTest, FlippedBitsInTheFileAreAMiss) {
  const Keys keys = chain(1, 8);
  {
    const KvBlockManager manager = *KvBlockManager::make(config());
    EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true));
  }
  damage_file();
  const KvBlockManager manager = *KvBlockManager::make(config());
  EXPECT_EQ(manager.locate(keys).blocks(), 8U);
  EXPECT_EQ(fetch_and_check(manager, keys), 0U);
  EXPECT_EQ(fetch_and_check(manager, keys), 0U);
}

// What the host tier got without a checksum cannot be verified.
TEST_F(PageCopiesThreadsTest, ABlockWithoutAChecksumIsNotServed) {
  const KvBlockManager manager = *KvBlockManager::make(config(16, 0));
  const Keys keys = chain(1, 1);
  MutableBlocks room = *manager.host()->allocate(1);
  (void)*(*std::move(room).complete({.keys = keys})).register_blocks();
  EXPECT_EQ(fetch_and_check(manager, keys), 0U);
}

TEST_F(PageCopiesThreadsTest, ADeadDiskLeavesWhatMemoryHas) {
  ManagerParts parts;
  parts.around = [](ExecutorKind, std::unique_ptr<TransferExecutor> real) {
    return std::make_unique<FaultExecutor>(steady_clock(), std::move(real),
                                           FaultOptions{.rules = {{.fault = Fault::kFail, .chance = 1}}});
  };
  const KvBlockManager manager = *KvBlockManager::make(config(16), parts);
  const Keys keys = chain(1, 12);
  EXPECT_THAT(*manager.store_pages(Buffers(keys).fill().list(), soon()), Each(true)) << "in memory";
  EXPECT_EQ(manager.disk()->count_prefix(keys), 0U);
  EXPECT_EQ(fetch_and_check(manager, keys), 12U);
  const Keys more = chain(2, 12);
  EXPECT_THAT(*manager.store_pages(Buffers(more).fill().list(), soon()), Each(true));
  EXPECT_LE(fetch_and_check(manager, keys), 4U) << "evicted, and nowhere else";
}

TEST_F(PageCopiesThreadsTest, SaysWhatIsWrongWithACall) {
  const KvBlockManager manager = *KvBlockManager::make(config());
  const Keys keys = chain(1, 2);
  const auto problem = [&](auto change) {
    Buffers buffers(keys);
    PageList list = buffers.list();
    change(buffers, list);
    const Result<std::vector<bool>> stored = manager.store_pages(list, soon());
    return stored ? "none" : stored.error().message;
  };
  EXPECT_EQ(problem([](Buffers&, PageList&) {}), "none");
  EXPECT_EQ(problem([](Buffers&, PageList& list) { list = {}; }), "none");
  EXPECT_THAT(problem([](Buffers&, PageList& list) { list.parts = list.parts.first(3); }), HasSubstr("3 parts"));
  EXPECT_THAT(problem([](Buffers&, PageList& list) { list.part_bytes = list.part_bytes.first(2); }),
              HasSubstr("2 sizes"));
  EXPECT_THAT(problem([](Buffers& b, PageList&) { b.sizes_[3] -= 8; }), HasSubstr("page 1 has 760 bytes"));
  EXPECT_THAT(problem([](Buffers& b, PageList&) { b.sizes_[0] -= 4; }), HasSubstr("multiples of 8"));
  EXPECT_THAT(problem([](Buffers& b, PageList&) { b.parts_[1] = nullptr; }), HasSubstr("no address"));

  ManagerConfig without = reference_config(folder_.in("other"), 8, 0, 0);
  const KvBlockManager no_host = *KvBlockManager::make(without);
  EXPECT_THAT(no_host.fetch_pages(Buffers(keys).list(), soon()).error().message, HasSubstr("set host.size"));
}

TEST_F(PageCopiesThreadsTest, ManyThreadsStoreFetchAndReset) {
  const KvBlockManager manager = *KvBlockManager::make(config(32, 128));
  std::atomic<std::size_t> right{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t turn = 0; turn < 40; ++turn) {
        const Keys keys = chain((thread + turn) % 8, 12);
        EXPECT_TRUE(manager.store_pages(Buffers(keys).fill().list(), soon()).has_value());
        right += fetch_and_check(manager, keys);
        if (thread == 0 && turn % 16 == 15) {
          EXPECT_TRUE(manager.reset_all().has_value());
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_GT(right, 4U * 40U * 12U / 2U);
  ASSERT_TRUE(manager.reset_all().has_value());
  EXPECT_EQ(fetch_and_check(manager, chain(1, 12)), 0U);
}

}  // namespace
}  // namespace cairn::testing
