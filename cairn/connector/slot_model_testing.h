// SlotModel: what a slot does, written the slow and obvious way, token by token. For tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cairn/connector/slot_testing.h"

namespace cairn::testing {

enum class Verdict : std::uint8_t { kOk, kInvalidState, kInvalidOperation };

// A token and a load or save, with all that is known of them.
struct ModelToken {
  Token token = 0;
  bool is_draft = false;
  bool is_on_device = false;
  bool was_computed_here = false;  // not found by the engine, not loaded
};
struct ModelCopy {
  bool is_load = false;
  bool is_taken = false;
  std::size_t first_block = 0;
  std::vector<BlockId> block_ids;
};

class SlotModel {
  using Kind = SlotState::Kind;

 public:
  explicit SlotModel(std::size_t prompt) {
    for (const Token token : tokens(prompt)) {
      tokens_.push_back({.token = token});
    }
    known_ = prompt;
  }

  Kind state = Kind::kInitialized;
  std::vector<BlockId> blocks;
  std::map<std::uint32_t, ModelCopy> copies;  // not ended, by number
  std::uint32_t next_copy = 0;
  std::vector<std::uint32_t> fences;  // saves
  std::vector<std::uint32_t> cancels;
  struct InStepSave {
    std::uint32_t copy = 0;
    std::size_t first = 0;
    std::size_t end = 0;
  };
  std::optional<InStepSave> in_step;  // not settled

  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] std::size_t computed() const {
    return static_cast<std::size_t>(std::ranges::count_if(tokens_, &ModelToken::is_on_device));
  }
  [[nodiscard]] std::size_t draft_tokens() const {
    return static_cast<std::size_t>(std::ranges::count_if(tokens_, &ModelToken::is_draft));
  }
  [[nodiscard]] std::vector<Token> content() const {
    std::vector<Token> out;
    for (const ModelToken& token : tokens_) {
      out.push_back(token.token);
    }
    return out;
  }
  [[nodiscard]] bool is_over() const { return state == Kind::kFinishing || state == Kind::kFinished; }

  // How many blocks from `local` on may be looked up: those that are followed by a verified token.
  [[nodiscard]] std::size_t wanted(std::size_t local) const {
    if (fell_short_ || local % kBlockSize != 0 || local < computed()) {
      return 0;
    }
    std::size_t count = 0;
    for (std::size_t end = local + kBlockSize; end < size() - draft_tokens(); end += kBlockSize) {
      ++count;
    }
    return count;
  }

  Verdict prefilling(std::uint64_t iteration) {
    return mark(Kind::kPrefilling, iteration, computed() < known_, [this] {
      has_run_ = true;
      staged_ = {};
    });
  }
  Verdict decoding(std::uint64_t iteration) {
    return mark(Kind::kDecoding, iteration, computed() >= known_, [] {});
  }
  Verdict onboarding(std::uint64_t iteration) {
    const bool has_room = computed() == staged_.begin * kBlockSize && blocks.size() >= staged_.end;
    return mark(Kind::kOnboarding, iteration, has_room, [this] { add_copy(true, staged_); });
  }
  Verdict scheduled(std::uint64_t iteration) {
    if (state == Kind::kOnboardStaged) {
      return onboarding(iteration);
    }
    return computed() < known_ ? prefilling(iteration) : decoding(iteration);
  }
  Verdict not_scheduled(std::uint64_t iteration) {
    return mark(Kind::kNotScheduled, iteration, state != Kind::kOnboarding, [this] { staged_ = {}; });
  }
  Verdict preempt(std::uint64_t iteration) {
    const Verdict verdict = not_scheduled(iteration);
    if (verdict == Verdict::kOk) {
      for (const auto& [number, copy] : copies) {
        fences.push_back(number);
      }
      drop_draft_tokens();
      for (ModelToken& token : tokens_) {
        token = {.token = token.token};
      }
      blocks.clear();
      offered_.clear();
      known_ = size();
      has_run_ = false;
      fell_short_ = false;
    }
    return verdict;
  }
  Verdict finish(std::uint64_t iteration) {
    const auto load = std::ranges::find_if(copies, [](const auto& copy) { return copy.second.is_load; });
    const bool withdraws = load != copies.end() && !load->second.is_taken;
    const bool waits = copies.size() > (withdraws ? 1U : 0U);
    return mark(waits ? Kind::kFinishing : Kind::kFinished, iteration, true, [&] {
      if (withdraws) {
        copies.erase(load);
      } else if (load != copies.end()) {
        cancels.push_back(load->first);
      }
      drop_draft_tokens();
      settle_end();
    });
  }
  Verdict acquire(std::size_t local, std::size_t found) {
    if (!is_step(state, Kind::kOnboardStaged)) {
      return Verdict::kInvalidState;
    }
    if (found > wanted(local)) {
      return Verdict::kInvalidOperation;
    }
    if (found > 0) {
      staged_ = {local / kBlockSize, local / kBlockSize + found};
      state = Kind::kOnboardStaged;
    } else if (state == Kind::kOnboardStaged) {
      staged_ = {};
      state = Kind::kNotScheduled;
    }
    return Verdict::kOk;
  }
  Verdict append(const std::vector<Token>& added, bool are_drafts) {
    const bool makes = state == Kind::kNotScheduled || state == Kind::kPrefilling || state == Kind::kDecoding;
    if (!makes || (are_drafts ? !has_run_ : draft_tokens() > 0)) {
      return Verdict::kInvalidOperation;
    }
    for (const Token token : added) {
      tokens_.push_back({.token = token, .is_draft = are_drafts});
    }
    if (!has_run_) {
      known_ = size();
    }
    return Verdict::kOk;
  }
  Verdict settle(std::size_t accepted) {
    if (accepted > draft_tokens()) {
      return Verdict::kInvalidOperation;
    }
    tokens_.resize(size() - draft_tokens() + accepted);
    for (ModelToken& token : tokens_) {
      token.is_draft = false;
    }
    offer();
    return Verdict::kOk;
  }
  Verdict advance(std::size_t count) {
    const std::size_t end = computed() + count;
    if (is_over() || state == Kind::kOnboarding || end > size() || end > blocks.size() * kBlockSize ||
        (!has_run_ && end == size()) || (state == Kind::kOnboardStaged && end > staged_.begin * kBlockSize)) {
      return Verdict::kInvalidOperation;
    }
    for (std::size_t i = computed(); i < end; ++i) {
      tokens_[i].is_on_device = true;
      tokens_[i].was_computed_here = has_run_;
    }
    offer();
    return Verdict::kOk;
  }
  // The blocks from the first one on that was not offered and that the engine did not have, as far as their tokens are
  // certain and have device blocks.
  bool offer_in_step(std::size_t token_count, std::size_t least) {
    std::size_t first = 0;
    while (offered_.contains(first) || (is_whole(first) && !is_computed_here(first))) {
      ++first;
    }
    const std::size_t end = std::min(std::min(token_count, size() - draft_tokens()) / kBlockSize, blocks.size());
    if (end < first + least) {
      return false;
    }
    in_step = InStepSave{next_copy, first, end};
    add_copy(false, {first, end});
    for (std::size_t block = first; block < end; ++block) {
      offered_.insert(block);
    }
    return true;
  }
  // Returns how many blocks of the in-step save stand.
  std::size_t settle_in_step(std::size_t token_count) {
    const InStepSave save = *std::exchange(in_step, std::nullopt);
    const auto copy = copies.find(save.copy);
    const bool is_untaken = copy != copies.end() && !copy->second.is_taken;
    if (is_untaken) {
      copies.erase(copy);
    }
    const std::size_t end = is_untaken ? save.first : std::clamp(token_count / kBlockSize, save.first, save.end);
    if (end < save.end) {
      std::erase_if(offered_, [end](std::size_t offered) { return offered >= end; });
    }
    return end - save.first;
  }
  Verdict retreat(std::size_t count) {
    const std::size_t end = computed();
    if (is_over() || state == Kind::kOnboarding || count > end) {
      return Verdict::kInvalidOperation;
    }
    if (count == 0) {
      return Verdict::kOk;
    }
    for (std::size_t i = end - count; i < end; ++i) {
      tokens_[i].is_on_device = false;
      tokens_[i].was_computed_here = false;
    }
    take_back_saves((end - count) / kBlockSize);
    if (state != Kind::kInitialized) {
      staged_ = {};
      state = Kind::kNotScheduled;
    }
    return Verdict::kOk;
  }
  Verdict give_blocks(const std::vector<BlockId>& more) {
    if (is_over()) {
      return Verdict::kInvalidOperation;
    }
    blocks.insert(blocks.end(), more.begin(), more.end());
    return Verdict::kOk;
  }
  Verdict copy_done(std::uint32_t number, bool is_load, std::size_t arrived) {
    const auto copy = copies.find(number);
    if (copy == copies.end() || copy->second.is_load != is_load || !copy->second.is_taken) {
      return Verdict::kInvalidOperation;
    }
    if (state == Kind::kOnboarding && is_load) {
      if (arrived > staged_.size()) {
        return Verdict::kInvalidOperation;
      }
      for (std::size_t i = staged_.begin * kBlockSize; i < (staged_.begin + arrived) * kBlockSize; ++i) {
        tokens_[i].is_on_device = true;
      }
      fell_short_ = arrived < staged_.size();
      staged_ = {};
      state = Kind::kNotScheduled;
    }
    copies.erase(copy);
    settle_end();
    return Verdict::kOk;
  }

 private:
  static bool is_step(Kind from, Kind to) {
    return std::ranges::any_of(kSlotTransitions,
                               [&](const SlotTransition& step) { return step.from == from && step.to == to; });
  }
  template <typename Act>
  Verdict mark(Kind to, std::uint64_t iteration, bool is_sensible, Act act) {
    if (!is_step(state, to)) {
      return Verdict::kInvalidState;
    }
    if (iteration < iteration_ || !is_sensible) {
      return Verdict::kInvalidOperation;
    }
    iteration_ = iteration;
    act();
    state = to;
    settle_end();
    return Verdict::kOk;
  }
  void settle_end() {
    if (state == Kind::kFinishing && copies.empty()) {
      state = Kind::kFinished;
    }
    if (state == Kind::kFinished) {
      blocks.clear();
    }
  }
  [[nodiscard]] bool is_whole(std::size_t block) const {
    if ((block + 1) * kBlockSize > size()) {
      return false;
    }
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(block * kBlockSize);
    return std::all_of(begin, begin + kBlockSize,
                       [](const ModelToken& token) { return token.is_on_device && !token.is_draft; });
  }
  // At its last token. Requires: it is full.
  [[nodiscard]] bool is_computed_here(std::size_t block) const {
    return tokens_[(block + 1) * kBlockSize - 1].was_computed_here;
  }
  void drop_draft_tokens() { tokens_.resize(size() - draft_tokens()); }
  void add_copy(bool is_load, BlockRange range) {
    copies[next_copy++] = {.is_load = is_load,
                           .first_block = range.begin,
                           .block_ids = {blocks.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                         blocks.begin() + static_cast<std::ptrdiff_t>(range.end)}};
  }
  // Takes back the saves of blocks from there on: saves that were not taken are dropped, the others are fenced.
  void take_back_saves(std::size_t block) {
    std::erase_if(offered_, [block](std::size_t offered) { return offered >= block; });
    for (auto& [number, copy] : copies) {
      if (!copy.is_taken && copy.first_block + copy.block_ids.size() > block) {
        copy.block_ids.resize(std::max(block, copy.first_block) - copy.first_block);
        if (in_step && in_step->copy == number) {
          in_step->end = std::max(block, copy.first_block);
        }
      }
    }
    std::erase_if(copies, [](const auto& numbered) { return numbered.second.block_ids.empty(); });
    for (const auto& [number, copy] : copies) {
      if (copy.first_block + copy.block_ids.size() > block) {
        fences.push_back(number);
      }
    }
  }
  // Every full block of verified tokens on the device whose last token was computed here and that was not offered.
  void offer() {
    std::vector<std::size_t> savable;
    for (std::size_t block = 0; (block + 1) * kBlockSize <= size(); ++block) {
      if (is_whole(block) && is_computed_here(block) && offered_.insert(block).second) {
        savable.push_back(block);
      }
    }
    if (!savable.empty()) {
      ASSERT_EQ(savable.back() - savable.front() + 1, savable.size());
      add_copy(false, {savable.front(), savable.back() + 1});
    }
  }

  std::vector<ModelToken> tokens_;
  std::size_t known_ = 0;
  std::uint64_t iteration_ = 0;
  bool has_run_ = false;
  bool fell_short_ = false;
  BlockRange staged_;
  std::set<std::size_t> offered_;  // since the last preemption
};

}  // namespace cairn::testing
