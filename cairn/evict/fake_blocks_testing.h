// FakeBlocks: what a pool shows its eviction policy, over a plain vector. For tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cairn/evict/eviction_policy.h"

namespace cairn {

inline void PrintTo(BlockId block_id, std::ostream* out) {
  block_id == kNoBlock ? *out << "none" : *out << index_of(block_id);
}

inline std::vector<BlockId> block_ids(std::initializer_list<std::uint32_t> numbers) {
  std::vector<BlockId> out;
  for (const std::uint32_t number : numbers) {
    out.push_back(BlockId{number});
  }
  return out;
}

inline BlockKey root_key(std::uint64_t hash) { return BlockKey::make_checked(0, SequenceHash{hash}, SequenceHash{0}); }
inline BlockKey child_key(const BlockKey& parent, std::uint64_t hash) {
  return BlockKey::make_checked(parent.position() + 1, SequenceHash{hash}, parent.sequence_hash());
}

// A policy as a pool may configure it.
struct Asked {
  PolicyKind kind;
  bool leaves_first = false;
};
inline std::vector<Asked> all_asked() {
  std::vector<Asked> all;
  for (const PolicyKind kind : kAllPolicies) {
    all.push_back({kind, false});
    all.push_back({kind, true});
  }
  return all;
}
inline void PrintTo(Asked asked, std::ostream* out) {
  *out << to_string(asked.kind) << (asked.leaves_first ? ", leaves first" : "");
}
// As a test's name.
inline constexpr auto kAskedName = [](const auto& param_info) {
  std::string name(to_string(param_info.param.kind));
  std::erase(name, '-');
  return name + (param_info.param.leaves_first ? "LeavesFirst" : "");
};

class FakeBlocks final : public ParentFinder {
 public:
  explicit FakeBlocks(std::uint32_t capacity, std::uint32_t class_count = 1)
      : capacity_(capacity), class_count_(class_count), records_(capacity + 1) {}

  [[nodiscard]] PolicyView view() const {
    return {.capacity = capacity_,
            .class_count = class_count_,
            .keys = Column<BlockKey>(&records_[0].key, sizeof(Record)),
            .classes = Column<EvictionClass>(&records_[0].eviction_class, sizeof(Record)),
            .parents = this,
            .clock = &clock_};
  }
  [[nodiscard]] std::unique_ptr<EvictionPolicy> make(PolicyKind kind) const { return make(Asked{kind}); }
  [[nodiscard]] std::unique_ptr<EvictionPolicy> make(Asked asked) const {
    PolicyView asked_view = view();
    asked_view.leaves_first = asked.leaves_first;
    return *make_policy(asked.kind, asked_view);
  }

  void advance(Duration by) { clock_.advance(by); }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] ClassRange all_classes() const { return {0, class_count_}; }
  [[nodiscard]] const BlockKey& key_of(BlockId block_id) const { return records_[index_of(block_id)].key; }
  [[nodiscard]] std::uint32_t class_of(BlockId block_id) const {
    return index_of(records_[index_of(block_id)].eviction_class);
  }

  // The block id holds this key from now on.
  void put(BlockId block_id, const BlockKey& key, std::uint32_t eviction_class = 0) {
    records_[index_of(block_id)] = {true, static_cast<EvictionClass>(eviction_class), key};
  }
  void set_class(BlockId block_id, std::uint32_t eviction_class) {
    records_[index_of(block_id)].eviction_class = static_cast<EvictionClass>(eviction_class);
  }
  [[nodiscard]] EvictionClass& class_entry(BlockId block_id) { return records_[index_of(block_id)].eviction_class; }
  // The block id loses its key, in the pool's order: it is not found any more, forgotten, overwritten.
  template <typename Policy>
  void drop(Policy& policy, BlockId block_id) {
    records_[index_of(block_id)].named = false;
    policy.forget(block_id);
    records_[index_of(block_id)] = {};
  }

  [[nodiscard]] BlockId find_parent(const BlockKey& child) const override {
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      if (records_[i].named && records_[i].key.is_parent_of(child)) {
        return BlockId{i};
      }
    }
    return kNoBlock;
  }

 private:
  struct Record {
    bool named = false;
    EvictionClass eviction_class{};
    BlockKey key;
  };

  ManualClock clock_;
  std::uint32_t capacity_;
  std::uint32_t class_count_;
  std::vector<Record> records_;
};

// The next `count` victims, or fewer if the policy has no more.
inline std::vector<BlockId> evict(EvictionPolicy& policy, std::uint32_t count,
                                  ClassRange classes = {0, ~std::uint32_t{0}}, const Veto& veto = {}) {
  std::vector<BlockId> victims;
  while (victims.size() < count) {
    const BlockId victim = policy.evict(classes, veto);
    if (victim == kNoBlock) {
      break;
    }
    victims.push_back(victim);
  }
  return victims;
}

inline std::vector<BlockId> evict_all(EvictionPolicy& policy, ClassRange classes = {0, ~std::uint32_t{0}},
                                      const Veto& veto = {}) {
  // One more than it holds, to detect a policy that returns a block twice.
  return evict(policy, policy.size() + 1, classes, veto);
}

}  // namespace cairn
