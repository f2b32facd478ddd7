// Random streams of several sources, with losses and restarts, against a naive model of what routers should know.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "cairn/events/consolidator.h"
#include "cairn/events/router_testing.h"

namespace cairn {
namespace {

using events_testing::TestRouter;

constexpr std::uint32_t kBlocks = 24;  // numbers 1 to 24; two sequences that share a prefix, and one of their own
constexpr std::uint32_t kSources = 2;
constexpr CacheLevel kTiers[] = {CacheLevel::kG1, CacheLevel::kG2};

// Of the block before it; 0 if there is none.
std::uint64_t parent_of(std::uint64_t block) { return block == 1 || block == 17 ? 0 : block == 9 ? 4 : block - 1; }

KvStored stored_run(std::uint64_t first, std::uint64_t count, bool has_tokens) {
  KvStored stored;
  for (std::uint64_t block = first; block < first + count && block <= kBlocks; ++block) {
    if (block != first && parent_of(block) != block - 1) {
      break;
    }
    stored.hashes.push_back(block);
    if (has_tokens) {
      stored.token_ids.push_back(static_cast<Token>(block));
    }
  }
  if (has_tokens) {
    stored.block_size = 1;
    if (parent_of(first) != 0) {
      stored.parent = parent_of(first);
    }
  }
  return stored;
}

// One set for each source and tier, and what follows from them.
class NaiveModel {
 public:
  using Place = std::pair<std::uint32_t, CacheLevel>;

  void store(Place place, const KvStored& stored) {
    for (std::size_t i = 0; i < stored.hashes.size(); ++i) {
      const std::uint64_t block = stored.hashes[i];
      where_[block].insert(place);
      Known& known = known_[block];
      known.tokens |= !stored.token_ids.empty();
      known.parent |= i > 0 || !stored.token_ids.empty();
    }
    settle();
  }
  void remove(Place place, std::uint64_t block) {
    where_[block].erase(place);
    forget_the_gone();
  }
  void clear(std::uint32_t source, std::optional<CacheLevel> tier) {
    for (auto& [block, places] : where_) {
      std::erase_if(places, [&](const Place& p) { return p.first == source && (!tier || p.second == *tier); });
    }
    forget_the_gone();
  }
  [[nodiscard]] std::set<TestRouter::Block> dedup() const {
    std::set<TestRouter::Block> blocks;
    for (const std::uint64_t block : announced_) {
      blocks.emplace(CacheLevel::kG1, block);
    }
    return blocks;
  }
  [[nodiscard]] std::set<TestRouter::Block> passthrough() const {
    std::set<TestRouter::Block> blocks;
    for (const auto& [block, places] : where_) {
      for (const Place& place : places) {
        blocks.emplace(place.second, block);
      }
    }
    return blocks;
  }

 private:
  struct Known {
    bool tokens = false;
    bool parent = false;
  };

  void forget_the_gone() {
    for (auto at = where_.begin(); at != where_.end();) {
      if (at->second.empty()) {
        known_.erase(at->first);
        announced_.erase(at->first);
        at = where_.erase(at);
      } else {
        ++at;
      }
    }
  }
  // Blocks 1 to 24 are numbered so that parents come first.
  void settle() {
    for (const auto& [block, places] : where_) {
      const Known& known = known_[block];
      if (known.tokens && known.parent && (parent_of(block) == 0 || announced_.contains(parent_of(block)))) {
        announced_.insert(block);
      }
    }
  }

  std::map<std::uint64_t, std::set<Place>> where_;
  std::map<std::uint64_t, Known> known_;
  std::set<std::uint64_t> announced_;
};

void check_random_streams(EventMode mode) {
  Consolidator consolidator(mode);
  NaiveModel model;
  TestRouter router(mode == EventMode::kDedup);
  const auto steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    const auto source = *rc::gen::inRange<std::uint32_t>(0, kSources);
    const CacheLevel tier = kTiers[*rc::gen::inRange(0, 2)];
    const auto first = *rc::gen::inRange<std::uint64_t>(1, kBlocks + 1);
    const auto count = *rc::gen::inRange<std::uint64_t>(1, 6);
    std::vector<KvEvent> out;
    switch (*rc::gen::weightedElement<int>({{10, 0}, {8, 1}, {1, 2}, {1, 3}, {1, 4}})) {
      case 0: {
        const KvStored stored = stored_run(first, count, *rc::gen::weightedElement<bool>({{4, true}, {1, false}}));
        model.store({source, tier}, stored);
        consolidator.apply(source, {.data = stored, .tier = tier}, out);
        break;
      }
      case 1: {
        KvRemoved removed;
        for (std::uint64_t block = first; block < first + count; ++block) {
          removed.hashes.push_back(block);
          model.remove({source, tier}, block);
        }
        consolidator.apply(source, {.data = removed, .tier = tier}, out);
        break;
      }
      case 2:  // the engine says so, was started again, or lost events
        model.clear(source, std::nullopt);
        consolidator.apply(source, {.data = KvCleared{}}, out);
        break;
      case 3:
        model.clear(source, tier);
        consolidator.clear(source, tier, out);
        break;
      default: {  // events were lost, and there is a snapshot
        const std::vector<KvEvent> now{{.data = stored_run(first, count, true), .tier = tier}};
        for (std::uint64_t block = 1; block <= kBlocks; ++block) {
          if (std::ranges::find(std::get<KvStored>(now[0].data).hashes, block) ==
              std::get<KvStored>(now[0].data).hashes.end()) {
            model.remove({source, tier}, block);
          }
        }
        model.store({source, tier}, std::get<KvStored>(now[0].data));
        consolidator.replace(source, tier, now, {}, out);
      }
    }
    router.apply(out);
    const std::set<TestRouter::Block> expected = mode == EventMode::kDedup ? model.dedup() : model.passthrough();
    RC_ASSERT(router.blocks() == expected);
    RC_ASSERT(consolidator.counts().announced == expected.size());
  }
  TestRouter late(false);  // a parent may have left before its children
  late.apply(consolidator.snapshot());
  RC_ASSERT(late.blocks() == router.blocks());
}

RC_GTEST_PROP(ConsolidatorModelTest, DedupAnnouncesEachBlockOnce, ()) { check_random_streams(EventMode::kDedup); }
RC_GTEST_PROP(ConsolidatorModelTest, PassthroughAnnouncesEachTier, ()) {
  check_random_streams(EventMode::kPassthrough);
}

}  // namespace
}  // namespace cairn
