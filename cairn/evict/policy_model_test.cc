// Every eviction policy, step by step, against its model.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_blocks_testing.h"
#include "cairn/evict/policy_model_testing.h"
#include "cairn/evict/segmented_models_testing.h"

namespace cairn {
namespace {

enum class Action : std::uint8_t { kPlace, kRelease, kHit, kEvict, kDrop, kReclass, kTouch };

// `pick` and `bits` choose the details of each action.
struct Step {
  Action action;
  std::uint32_t pick;
  std::uint32_t count;
  std::uint32_t bits;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  constexpr std::array kNames{"place", "release", "hit", "evict", "drop", "reclass", "touch"};
  return out << kNames[static_cast<std::size_t>(step.action)] << '(' << step.pick << ", " << step.count << ", "
             << step.bits << ')';
}

rc::Gen<std::vector<Step>> steps() {
  const auto action = rc::gen::weightedElement<Action>({{5, Action::kPlace},
                                                        {7, Action::kRelease},
                                                        {3, Action::kHit},
                                                        {3, Action::kEvict},
                                                        {2, Action::kDrop},
                                                        {2, Action::kReclass},
                                                        {2, Action::kTouch}});
  const auto step = rc::gen::map(
      rc::gen::tuple(action, rc::gen::inRange(0U, 1'000U), rc::gen::inRange(1U, 6U), rc::gen::inRange(0U, 4'096U)),
      [](const auto& parts) {
        return Step{std::get<0>(parts), std::get<1>(parts), std::get<2>(parts), std::get<3>(parts)};
      });
  return rc::gen::scale(6.0, rc::gen::container<std::vector<Step>>(step));
}

std::uint64_t scrambled(std::uint64_t number) {
  number = (number ^ (number >> 31)) * 0x9E3779B97F4A7C15U;
  return number ^ (number >> 29);
}

// A forest of blocks: each is a root, follows an unknown block, or follows an earlier one.
std::vector<BlockKey> forest(const std::vector<std::uint32_t>& links) {
  constexpr std::array<std::uint32_t, 4> kDeep{1, 254, 65534, BlockKey::kMaxPosition - 1};
  std::vector<BlockKey> blocks;
  for (std::uint32_t n = 0; n < links.size(); ++n) {
    const std::uint64_t hash = scrambled(n + 1);
    const std::uint32_t choice = links[n] % (2 * n + 3);
    const BlockKey* parent = choice >= 3 ? &blocks[(choice - 3) / 2] : nullptr;
    if (parent != nullptr && parent->position() < BlockKey::kMaxPosition) {
      blocks.push_back(child_key(*parent, hash));
    } else if (choice == 0) {
      blocks.push_back(BlockKey::make_checked(kDeep[links[n] % 4], SequenceHash{hash}, SequenceHash{scrambled(1'000)}));
    } else {
      blocks.push_back(root_key(hash));
    }
  }
  return blocks;
}

// kAdaptive chooses by what it learned: adaptive_test.cc, return_model.h.
std::vector<Asked> all_with_models() {
  std::vector<Asked> all = all_asked();
  std::erase_if(all, [](Asked asked) { return asked.kind == PolicyKind::kAdaptive; });
  return all;
}

std::unique_ptr<PolicyModel> make_plain_model(PolicyKind kind, const FakeBlocks& fake) {
  switch (kind) {
    case PolicyKind::kFifo:
      return std::make_unique<FifoModel>(fake);
    case PolicyKind::kLru:
      return std::make_unique<LruModel>(fake);
    case PolicyKind::kLineageTick:
      return std::make_unique<LineageModel>(fake, true);
    case PolicyKind::kLineageFifo:
      return std::make_unique<LineageModel>(fake, false);
    case PolicyKind::kLfu:
      return std::make_unique<LfuModel>(fake);
    case PolicyKind::kSlru:
      return std::make_unique<SlruModel>(fake);
    case PolicyKind::kArc:
      return std::make_unique<ArcModel>(fake);
    case PolicyKind::kS3Fifo:
      return std::make_unique<S3FifoModel>(fake);
    case PolicyKind::kMultiLru:
      return std::make_unique<MultiLruModel>(fake);
    case PolicyKind::kAdaptive:
      break;
  }
  return nullptr;
}

std::unique_ptr<PolicyModel> make_model(Asked asked, const FakeBlocks& fake) {
  std::unique_ptr<PolicyModel> plain = make_plain_model(asked.kind, fake);
  if (!asked.leaves_first) {
    return plain;
  }
  auto* const slru = dynamic_cast<SlruModel*>(plain.get());
  auto model = std::make_unique<LeafFirstModel>(fake, std::move(plain));
  if (slru != nullptr) {  // which demotes as it inserts
    slru->set_leaf_test([tree = &model->tree()](BlockId block_id) { return tree->is_leaf(block_id); });
  }
  return model;
}

// A policy and its model under the same steps.
class SideBySide {
 public:
  static constexpr std::uint32_t kBlocks = 16;
  static constexpr std::uint32_t kClasses = 202;

  SideBySide(Asked asked, std::vector<BlockKey> blocks)
      : blocks_(std::move(blocks)), policy_(fake_.make(asked)), model_(make_model(asked, fake_)) {}

  void take(const Step& step) {
    switch (step.action) {
      case Action::kPlace:
        return place(step);
      case Action::kRelease:
        return release(step);
      case Action::kHit:
        return hit(step);
      case Action::kEvict:
        return evict_one(step);
      case Action::kDrop:
        return drop(step);
      case Action::kReclass:
        return reclass(step);
      case Action::kTouch:
        return touch(step);
    }
  }

  void check_holdings() const {
    std::uint32_t held = 0;
    for (std::uint32_t n = 0; n < kBlocks; ++n) {
      RC_ASSERT(policy_->contains(BlockId{n}) == (states_[n] == State::kHeld));
      held += states_[n] == State::kHeld ? 1 : 0;
    }
    RC_ASSERT(policy_->size() == held);
  }

  void check_order_of_the_rest() {
    for (std::uint32_t n = 0; n <= kBlocks; ++n) {
      RC_ASSERT(policy_->evict(fake_.all_classes(), {}) == model_->evict(fake_.all_classes(), {}));
    }
    RC_ASSERT(policy_->size() == 0U);
  }

 private:
  enum class State : std::uint8_t { kEmpty, kInUse, kHeld };
  static constexpr std::array<std::uint32_t, 6> kUsedClasses{0, 1, 63, 64, 130, 201};

  // Up to `count` blocks in this state; their order is that of the blocks, leaf first, root first or any.
  std::vector<BlockId> some(State state, const Step& step) const {
    std::vector<BlockId> found;
    for (std::uint32_t n = 0; n < kBlocks; ++n) {
      if (states_[n] == state) {
        found.push_back(BlockId{n});
      }
    }
    if (found.empty()) {
      return found;
    }
    std::ranges::rotate(found, found.begin() + static_cast<std::ptrdiff_t>(step.pick % found.size()));
    found.resize(std::min<std::size_t>(found.size(), step.count));
    const auto position = [this](BlockId block_id) { return fake_.key_of(block_id).position(); };
    switch (step.bits % 4) {
      case 0:
        std::ranges::stable_sort(found, std::ranges::greater{}, position);
        break;
      case 1:
        std::ranges::stable_sort(found, std::ranges::less{}, position);
        break;
      case 2:
        std::ranges::sort(found, {}, [&step](BlockId block_id) { return scrambled(index_of(block_id) + step.bits); });
        break;
      default:
        break;
    }
    return found;
  }

  [[nodiscard]] bool is_placed(const BlockKey& key) const {
    for (std::uint32_t n = 0; n < kBlocks; ++n) {
      if (states_[n] != State::kEmpty && fake_.key_of(BlockId{n}) == key) {
        return true;
      }
    }
    return false;
  }

  void place(const Step& step) {
    std::size_t next = step.pick % blocks_.size();
    for (const BlockId block_id : some(State::kEmpty, step)) {
      while (is_placed(blocks_[next])) {  // there are more keys than block ids
        next = (next + 1) % blocks_.size();
      }
      fake_.put(block_id, blocks_[next], kUsedClasses[(step.bits + next) % kUsedClasses.size()]);
      states_[index_of(block_id)] = State::kInUse;
    }
  }

  void release(const Step& step) {
    const std::vector<BlockId> block_ids = some(State::kInUse, step);
    policy_->insert(block_ids);
    for (const BlockId block_id : block_ids) {
      model_->insert(block_id);
      states_[index_of(block_id)] = State::kHeld;
    }
  }

  void hit(const Step& step) {
    const std::vector<BlockId> block_ids = some(State::kHeld, step);
    policy_->remove(block_ids);
    for (const BlockId block_id : block_ids) {
      model_->remove(block_id);
      states_[index_of(block_id)] = State::kInUse;
    }
  }

  // Some victims keep their key for a while: an allocation forgets them together at its end.
  void evict_one(const Step& step) {
    const std::uint32_t first = step.bits % 3 == 0 ? kUsedClasses[step.pick % kUsedClasses.size()] : 0;
    const std::uint32_t last = step.bits % 5 == 0 ? first + step.pick % kClasses : kClasses;
    Veto veto;
    if (step.count > 2) {
      veto = [&step](BlockId block_id) { return scrambled(index_of(block_id) + step.bits) % 4 < step.count - 2; };
    }
    const BlockId victim = model_->evict({first, last}, veto);
    RC_ASSERT(policy_->evict({first, last}, veto) == victim);
    if (victim != kNoBlock) {
      states_[index_of(victim)] = State::kInUse;
      if (step.bits % 2 == 0) {
        forget(victim);
      }
    }
  }

  void drop(const Step& step) {
    for (const BlockId block_id : some(State::kInUse, step)) {
      forget(block_id);
    }
  }

  void forget(BlockId block_id) {
    model_->forget(block_id);
    fake_.drop(*policy_, block_id);
    states_[index_of(block_id)] = State::kEmpty;
  }

  void reclass(const Step& step) {
    const EvictionClass to{static_cast<std::uint16_t>(kUsedClasses[step.bits % kUsedClasses.size()])};
    for (const BlockId block_id : some(State::kInUse, step)) {
      fake_.set_class(block_id, index_of(to));
    }
    for (const BlockId block_id : some(State::kHeld, step)) {
      policy_->reclass(block_id, fake_.class_entry(block_id), to);
    }
  }

  void touch(const Step& step) {
    const std::vector<BlockId> block_ids = some(State::kInUse, step);
    policy_->match({}, block_ids);
    for (const BlockId block_id : block_ids) {
      model_->touch(block_id);
    }
  }

  FakeBlocks fake_{kBlocks, kClasses};
  std::array<State, kBlocks> states_{};
  std::vector<BlockKey> blocks_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<PolicyModel> model_;
};

class PolicyModelTest : public ::testing::TestWithParam<Asked> {};

TEST_P(PolicyModelTest, GivesTheVictimsOfTheModel) {
  rc::detail::checkGTest([asked = GetParam()] {
    const auto links = *rc::gen::container<std::vector<std::uint32_t>>(24, rc::gen::inRange(0U, 10'000U));
    SideBySide run(asked, forest(links));
    for (const Step& step : *steps()) {
      run.take(step);
      run.check_holdings();
    }
    run.check_order_of_the_rest();
  });
}

INSTANTIATE_TEST_SUITE_P(All, PolicyModelTest, ::testing::ValuesIn(all_with_models()), kAskedName);

}  // namespace
}  // namespace cairn
