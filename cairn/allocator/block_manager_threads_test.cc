// Several managers on one allocator: step by step against a model, then all at once on threads.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/allocator/block_manager.h"

namespace cairn {
namespace {

std::vector<std::uint32_t> numbers_of(const BlockManager& manager, std::uint64_t sequence_id) {
  std::vector<std::uint32_t> numbers;
  manager.visit_block_table(sequence_id, [&numbers](const BlockTable& table) {
    for (const PhysicalTokenBlock& block : table.physical_blocks()) {
      numbers.push_back(block.block_number);
    }
  });
  return numbers;
}

// Three managers on one allocator against plain maps.
class Model {
 public:
  static constexpr std::uint32_t kTotal = 12;

  struct Tenant {
    TenantShare share;
    std::unique_ptr<BlockManager> manager;                            // none after it was destroyed
    std::map<std::uint64_t, std::vector<std::uint32_t>> sequences{};  // what the tables should be
    std::vector<BlockHold> holds{};

    [[nodiscard]] bool present() const { return manager != nullptr || !holds.empty(); }
    [[nodiscard]] std::set<std::uint32_t> used() const {
      std::set<std::uint32_t> blocks;
      for (const auto& [id, table] : sequences) {
        blocks.insert(table.begin(), table.end());
      }
      for (const BlockHold& hold : holds) {
        blocks.insert(hold.block().block_number);
      }
      return blocks;
    }
    [[nodiscard]] std::uint32_t unmet() const {
      const auto count = static_cast<std::uint32_t>(used().size());
      return present() && count < share.reserved ? share.reserved - count : 0;
    }
    [[nodiscard]] auto users_of(std::uint32_t block) const {
      const auto in_table = [block](const auto& entry) { return std::ranges::count(entry.second, block) > 0; };
      const auto in_hold = [block](const BlockHold& hold) { return hold.block().block_number == block; };
      return std::ranges::count_if(sequences, in_table) + std::ranges::count_if(holds, in_hold);
    }
  };

  void join(Tenant& tenant) {
    if (tenant.manager == nullptr) {
      const bool expected = !tenant.present() && tenant.share.reserved + unmet() <= free_count();
      auto manager = BlockManager::create_shared(allocator_, tenant.share);
      RC_ASSERT(manager.has_value() == expected);
      tenant.manager = manager ? *std::move(manager) : nullptr;
    }
  }

  void allocate(Tenant& tenant, std::uint64_t id, std::uint32_t count) {
    const bool expected = count <= available(tenant);
    RC_ASSERT(tenant.manager->can_allocate(count) == expected);
    std::set<std::uint32_t> in_use = used();
    const auto first = tenant.manager->allocate(id, count);
    RC_ASSERT(first.has_value() == expected);
    if (expected && count > 0) {
      std::vector<std::uint32_t>& table = tenant.sequences[id];
      RC_ASSERT(*first == table.size());
      const std::vector<std::uint32_t> now = numbers_of(*tenant.manager, id);
      RC_ASSERT(now.size() == table.size() + count);
      for (std::uint32_t block : std::span(now).subspan(*first)) {
        RC_ASSERT(in_use.insert(block).second);  // it was free
        table.push_back(block);
      }
    }
  }

  void fork(Tenant& tenant, std::uint64_t parent, std::uint64_t child) {
    const bool expected = tenant.sequences.contains(parent) && !tenant.sequences.contains(child);
    RC_ASSERT(tenant.manager->fork(parent, child).has_value() == expected);
    if (expected) {
      tenant.sequences[child] = tenant.sequences[parent];
    }
  }

  void write(Tenant& tenant, std::uint64_t id, std::uint32_t index) {
    const auto found = tenant.sequences.find(id);
    const bool exists = found != tenant.sequences.end() && index < found->second.size();
    const bool shared = exists && tenant.users_of(found->second[index]) > 1;
    const bool expected = exists && (!shared || available(tenant) > 0);
    auto writable = tenant.manager->make_writable(id, index);
    RC_ASSERT(writable.has_value() == expected);
    if (expected) {
      RC_ASSERT(writable->copy_from.has_value() == shared);
      RC_ASSERT(shared == !used().contains(writable->block.block_number));
      found->second[index] = writable->block.block_number;
      if (shared) {
        tenant.holds.push_back(std::move(*writable->copy_from));
      }
    }
  }

  void free(Tenant& tenant, std::uint64_t id) {
    const std::size_t before = tenant.used().size();
    tenant.sequences.erase(id);
    RC_ASSERT(tenant.manager->free_returning_count(id) == before - tenant.used().size());
  }

  void check() const {
    RC_ASSERT(allocator_->free_blocks() == free_count());
    RC_ASSERT(unmet() <= free_count());  // every reservation can be met
    for (const Tenant& tenant : tenants) {
      RC_ASSERT(tenant.used().size() <= tenant.share.limit);
      if (tenant.manager != nullptr) {
        RC_ASSERT(tenant.manager->used_blocks() == tenant.used().size());
        for (std::uint64_t id = 0; id < 4; ++id) {
          const auto found = tenant.sequences.find(id);
          const auto expected = found == tenant.sequences.end() ? std::vector<std::uint32_t>() : found->second;
          RC_ASSERT(numbers_of(*tenant.manager, id) == expected);
        }
      }
    }
  }

  std::vector<Tenant> tenants;

 private:
  [[nodiscard]] std::set<std::uint32_t> used() const {
    std::set<std::uint32_t> all;
    std::size_t sum = 0;
    for (const Tenant& tenant : tenants) {
      all.merge(tenant.used());
      sum += tenant.used().size();
    }
    RC_ASSERT(all.size() == sum);  // no block belongs to two tenants
    return all;
  }
  [[nodiscard]] std::uint32_t free_count() const { return kTotal - static_cast<std::uint32_t>(used().size()); }
  [[nodiscard]] std::uint32_t unmet() const {
    std::uint32_t sum = 0;
    for (const Tenant& tenant : tenants) {
      sum += tenant.unmet();
    }
    return sum;
  }
  [[nodiscard]] std::uint32_t available(const Tenant& tenant) const {
    const auto left = tenant.share.limit - static_cast<std::uint32_t>(tenant.used().size());
    return std::min(left, free_count() - (unmet() - tenant.unmet()));
  }

  std::shared_ptr<SharedBlockAllocator> allocator_ = *SharedBlockAllocator::create(kTotal, 16, 0);
};

RC_GTEST_PROP(BlockManagerModelTest, KeepsTheTablesAndSharesOfTheModel, ()) {
  Model model;
  for (const char* name : {"a", "b", "c"}) {
    const auto reserved = *rc::gen::inRange<std::uint32_t>(0, 6);
    const auto limit = *rc::gen::inRange<std::uint32_t>(reserved, Model::kTotal + 2);
    model.tenants.push_back({TenantShare{name, reserved, limit}, nullptr});
  }
  using Step = std::tuple<int, std::size_t, std::uint64_t, std::uint32_t>;
  const auto steps = *rc::gen::scale(
      4.0, rc::gen::container<std::vector<Step>>(rc::gen::tuple(
               rc::gen::weightedElement<int>({{3, 0}, {6, 1}, {4, 2}, {5, 3}, {3, 4}, {2, 5}, {1, 6}}),
               rc::gen::inRange<std::size_t>(0, 3), rc::gen::inRange<std::uint64_t>(0, 4), rc::gen::inRange(0U, 5U))));
  for (const auto& [operation, who, id, number] : steps) {
    Model::Tenant& tenant = model.tenants[who];
    if (operation == 0 || tenant.manager == nullptr) {
      model.join(tenant);
    } else if (operation == 1) {
      model.allocate(tenant, id, number);
    } else if (operation == 2) {
      model.fork(tenant, id, number % 4);
    } else if (operation == 3) {
      model.write(tenant, id, number);
    } else if (operation == 4) {
      model.free(tenant, id);
    } else if (operation == 5) {
      tenant.holds.clear();
    } else {
      tenant.manager.reset();
      tenant.sequences.clear();
    }
    model.check();
  }
}

constexpr std::uint32_t kTotal = 48;
constexpr int kManagers = 3;
constexpr int kThreadsEach = 2;
constexpr int kRounds = 2'000;
constexpr std::uint64_t kPrompt = 1;  // one in each manager, forked by all its threads
constexpr std::uint32_t kPromptBlocks = 4;

// Stands for the KV memory. Plain, so that TSan sees any block that two threads have for writing at once, and so that a
// block reused while it is still being copied from is read with the wrong content.
using Memory = std::vector<std::uint64_t>;

class Worker {
 public:
  Worker(BlockManager& manager, Memory& memory, std::uint64_t id) : manager_(manager), memory_(memory), id_(id) {}

  void run() {
    std::mt19937_64 random(id_);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t sequence = (id_ << 32) + 2 * round;
      if (!manager_.fork(kPrompt, sequence)) {
        ADD_FAILURE() << "the prompt of worker " << id_ << " is gone";
        return;
      }
      write(sequence, static_cast<std::uint32_t>(random() % kPromptBlocks), sequence);
      const auto grown = manager_.allocate(sequence, static_cast<std::uint32_t>(random() % 8));
      const std::uint32_t blocks = manager_.blocks_for_sequence(sequence);
      if (grown) {
        for (std::uint32_t index = *grown; index < blocks; ++index) {
          write(sequence, index, sequence);
        }
        fork_and_write(sequence, static_cast<std::uint32_t>(random() % blocks));
      }
      static_cast<void>(manager_.can_allocate(3));
      manager_.free(sequence);
    }
  }

  [[nodiscard]] std::uint64_t writes() const { return writes_; }

 private:
  // Returns false and writes nothing if the pool had no block for the copy.
  bool write(std::uint64_t sequence, std::uint32_t index, std::uint64_t value) {
    Result<WritableBlock> writable = manager_.make_writable(sequence, index);
    if (!writable) {
      EXPECT_EQ(writable.error().code, ErrorCode::kExhausted);
      return false;
    }
    if (writable->copy_from) {
      memory_[writable->block.block_number] = memory_[writable->copy_from->block().block_number];
      writable->copy_from.reset();
    }
    memory_[writable->block.block_number] = value;
    ++writes_;
    return true;
  }

  [[nodiscard]] std::uint64_t read(std::uint64_t sequence, std::uint32_t index) const {
    return memory_[manager_.get_block_table(sequence)->physical_blocks()[index].block_number];
  }

  // What one writes, the other does not see.
  void fork_and_write(std::uint64_t parent, std::uint32_t index) {
    const std::uint64_t child = parent + 1;
    const std::uint64_t before = read(parent, index);
    ASSERT_TRUE(manager_.fork(parent, child));
    const bool written = write(child, index, child);
    EXPECT_EQ(read(parent, index), before);
    EXPECT_EQ(read(child, index), written ? child : before);
    manager_.free(child);
  }

  BlockManager& manager_;
  Memory& memory_;
  const std::uint64_t id_;
  std::uint64_t writes_ = 0;
};

TEST(BlockManagerThreadsTest, ManagersHammerOneAllocator) {
  const auto allocator = *SharedBlockAllocator::create(kTotal, 16, 0);
  Memory memory(kTotal, 0);
  std::vector<std::unique_ptr<BlockManager>> managers;
  for (int m = 0; m < kManagers; ++m) {
    const std::string name(1, static_cast<char>('a' + m));
    managers.push_back(*BlockManager::create_shared(allocator, {.name = name, .reserved = 8, .limit = 16}));
    ASSERT_TRUE(managers.back()->allocate(kPrompt, kPromptBlocks));
  }
  std::vector<Worker> workers;
  for (int w = 0; w < kManagers * kThreadsEach; ++w) {
    workers.emplace_back(*managers[w % kManagers], memory, w + 1);
  }
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker] { worker.run(); });
  }
  // Meanwhile a tenant joins and leaves, and always gets its reservation.
  int joined = 0;
  while (joined < 50) {
    auto visitor = BlockManager::create_shared(allocator, {.name = "visitor", .reserved = 8});
    if (visitor) {
      EXPECT_TRUE((*visitor)->allocate(7, 8));
      ++joined;
    } else {
      EXPECT_EQ(visitor.error().code, ErrorCode::kExhausted);
      std::this_thread::yield();
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t writes = 0;
  for (const Worker& worker : workers) {
    writes += worker.writes();
  }
  EXPECT_GT(writes, std::uint64_t{kRounds});
  for (const auto& manager : managers) {
    EXPECT_EQ(manager->used_blocks(), kPromptBlocks);
    EXPECT_EQ(manager->free_returning_count(kPrompt), kPromptBlocks);
  }
  EXPECT_EQ(allocator->free_blocks(), kTotal);
}

// Copies end after their manager, on other threads, and other managers take the blocks at once.
TEST(BlockManagerThreadsTest, HoldsEndOnAnyThread) {
  const auto allocator = *SharedBlockAllocator::create(kTotal, 16, 0);
  for (int round = 0; round < 200; ++round) {
    auto manager = *BlockManager::create_shared(allocator, {.name = "short-lived-" + std::to_string(round)});
    ASSERT_TRUE(manager->allocate(1, 4));
    ASSERT_TRUE(manager->fork(1, 2));
    std::vector<std::thread> copiers;
    for (std::uint32_t index = 0; index < 4; ++index) {
      WritableBlock writable = *manager->make_writable(2, index);
      ASSERT_TRUE(writable.copy_from.has_value());
      copiers.emplace_back(
          [hold = std::move(*writable.copy_from)]() mutable { const BlockHold done = std::move(hold); });
    }
    manager.reset();
    for (std::thread& copier : copiers) {
      copier.join();
    }
    ASSERT_EQ(allocator->free_blocks(), kTotal);
  }
}

}  // namespace
}  // namespace cairn
