// A KvManager with one tier below, as simple as possible: LRU in both tiers, links in order, a millisecond per block.
// Tests compare the real one with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {

class NaiveTiers {
 public:
  using Id = std::uint64_t;
  using Ids = std::vector<Id>;
  enum class Start : std::uint8_t { kNothing, kScheduled, kBlocked };

  struct Options {
    std::size_t g1;
    std::size_t g2;
    std::size_t batch;
    std::size_t max_copies;
  };

  explicit NaiveTiers(const Options& options) : options_(options) {}

  std::size_t use(const Ids& ids, const std::vector<PartialId>& partials) {
    Ids made;
    std::optional<Id> parent;
    std::size_t granted = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Id id = ids[i];
      if (in_g1(id)) {
        parent = id;
      } else if (free() > 0) {
        made.push_back(id);
        parent_in_g1_[id] = i == 0 ? std::nullopt : std::optional(ids[i - 1]);
      } else {
        break;
      }
      std::erase(inactive, id);
      ++refs[id];
      ++granted;
    }
    for (std::size_t i = 0; granted == ids.size() + i && i < partials.size(); ++i) {
      if (!partials_.contains(partials[i])) {
        if (free() == 0) {
          break;
        }
        partials_.insert(partials[i]);
      }
      ++granted;
    }
    Ids gone;
    if (granted < ids.size() + partials.size() && !inactive.empty()) {
      gone = evict(1);
      std::size_t more = 0;
      for (std::size_t i = granted + 1; i < ids.size(); ++i) {
        more += in_g1(ids[i]) ? 0 : 1;
      }
      for (std::size_t i = std::max(granted + 1, ids.size()); i < ids.size() + partials.size(); ++i) {
        more += partials_.contains(partials[i - ids.size()]) ? 0 : 1;
      }
      const Ids others = evict(std::min(more, inactive.size()));
      gone.insert(gone.end(), others.begin(), others.end());
    }
    if (!made.empty()) {
      events.push_back(stored(made, parent));
    }
    tell_removed(gone);
    offload(gone);
    return granted;
  }
  void deref(const Ids& ids) {
    for (const Id id : ids) {
      if (--refs[id] == 0) {
        refs.erase(id);
        retire(id);
      }
    }
  }
  void drop(PartialId partial) { partials_.erase(partial); }

  Start swap_in(const Ids& ids) {
    std::size_t cached = 0;
    while (cached < ids.size() && in_g1(ids[cached])) {
      ++cached;
    }
    Ids found;
    for (std::size_t i = cached; i < ids.size() && in_g2(ids[i]); ++i) {
      found.push_back(ids[i]);
    }
    if (found.empty()) {
      return Start::kNothing;
    }
    const Ids prefix(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cached));
    pin(prefix);
    for (const Id id : found) {
      ++read_[id];
      std::erase(inactive_g2, id);
    }
    if (found.size() > free()) {
      const Ids gone = evict(std::min(found.size() - free(), inactive.size()));
      tell_removed(gone);
      offload(gone);
      stop_reading(found);
      unpin(prefix);
      return gone.empty() ? Start::kNothing : Start::kBlocked;
    }
    reserved += found.size();
    std::vector<std::optional<Id>> parents;
    for (std::size_t i = cached; i < cached + found.size(); ++i) {
      parents.push_back(i > 0 ? std::optional(ids[i - 1]) : std::nullopt);
    }
    const std::size_t load = next_number_++;
    loads_[load] = {.blocks = found, .parents = parents, .prefix = prefix};
    up_free_ = std::max(up_free_, clock_) + found.size();
    moving_[{up_free_, next_transfer_++}] = {.is_load = true, .number = load};
    return Start::kScheduled;
  }
  // The number of the load that was scheduled last.
  [[nodiscard]] std::size_t last_scheduled() const { return loads_.rbegin()->first; }

  void advance_to(std::uint64_t now) {
    while (!moving_.empty() && moving_.begin()->first.first <= now) {
      const auto [when, moved] = *moving_.begin();
      moving_.erase(moving_.begin());
      clock_ = when.first;
      if (moved.is_load) {
        stop_reading(loads_[moved.number].blocks);
        finished_.push_back(moved.number);
      } else {
        end_copy(moved.number);
        begin_pending();
      }
    }
    clock_ = std::max(clock_, now);
    for (const std::size_t load : std::exchange(finished_, {})) {
      land(load);
    }
  }
  [[nodiscard]] std::optional<std::uint64_t> next_event_time() const {
    return moving_.empty() ? std::nullopt : std::optional(moving_.begin()->first.first);
  }

  [[nodiscard]] bool in_g1(Id id) const {
    return refs.contains(id) || pins_.contains(id) || std::ranges::find(inactive, id) != inactive.end();
  }
  [[nodiscard]] bool in_g2(Id id) const { return parent_in_g2_.contains(id); }
  [[nodiscard]] std::size_t free() const {
    std::set<Id> blocks(inactive.begin(), inactive.end());
    for (const auto& [id, count] : refs) {
      blocks.insert(id);
    }
    for (const auto& [id, count] : pins_) {
      blocks.insert(id);
    }
    return options_.g1 - blocks.size() - partials_.size() - reserved - quarantined;
  }
  [[nodiscard]] TestManager::Counts counts() const {
    std::size_t all = partials_.size();
    for (const auto& [id, count] : refs) {
      all += count;
    }
    return {options_.g1 - free() - inactive.size(), all, inactive.size()};
  }

  std::map<Id, std::size_t> refs;
  std::deque<Id> inactive;     // the oldest first
  std::deque<Id> inactive_g2;  // the same
  std::size_t quarantined = 0;
  std::size_t reserved = 0;
  std::vector<SeenEvent> events;
  std::vector<std::size_t> landed;  // loads, in order

 private:
  struct Copy {
    Ids blocks;
    std::vector<std::optional<Id>> parents;
    std::size_t hold;
  };
  struct Hold {
    std::size_t blocks;
    std::size_t copies;
  };
  struct Load {
    Ids blocks;
    std::vector<std::optional<Id>> parents;
    Ids prefix;  // pinned
  };
  struct Moved {
    bool is_load;
    std::size_t number;
  };

  void retire(Id id) {
    if (!refs.contains(id) && !pins_.contains(id)) {
      inactive.push_back(id);
    }
  }
  void pin(const Ids& ids) {
    for (const Id id : ids) {
      ++pins_[id];
      std::erase(inactive, id);
    }
  }
  void unpin(Ids ids) {
    std::ranges::reverse(ids);
    for (const Id id : ids) {
      if (--pins_[id] == 0) {
        pins_.erase(id);
        retire(id);
      }
    }
  }
  Ids evict(std::size_t count) {
    const Ids gone(inactive.begin(), inactive.begin() + static_cast<std::ptrdiff_t>(count));
    inactive.erase(inactive.begin(), inactive.begin() + static_cast<std::ptrdiff_t>(count));
    return gone;
  }
  void tell_removed(const Ids& gone) {
    if (!gone.empty()) {
      events.push_back(removed(gone));
    }
  }

  void offload(const Ids& gone) {
    Ids ids;  // to be copied
    std::ranges::copy_if(gone, std::back_inserter(ids), [&](Id id) { return !in_g2(id) && !expected_.contains(id); });
    if (ids.empty()) {
      return;
    }
    expected_.insert(ids.begin(), ids.end());
    quarantined += gone.size();
    const std::size_t hold = next_number_++;
    holds_[hold] = {gone.size(), 0};
    for (std::size_t i = 0; i < ids.size(); i += options_.batch) {
      Copy copy{.blocks = {}, .parents = {}, .hold = hold};
      for (std::size_t j = i; j < std::min(ids.size(), i + options_.batch); ++j) {
        copy.blocks.push_back(ids[j]);
        copy.parents.push_back(parent_in_g1_[ids[j]]);
      }
      copies_[next_number_] = copy;
      waiting_.push_back(next_number_++);
      ++holds_[hold].copies;
    }
    begin_pending();
  }
  void begin_pending() {
    while (!waiting_.empty() && in_flight_ < options_.max_copies) {
      const std::size_t number = waiting_.front();
      waiting_.pop_front();
      begin(number);
    }
  }
  void begin(std::size_t number) {
    Copy& copy = copies_[number];
    const std::size_t free_g2 = options_.g2 - parent_in_g2_.size() - coming_;
    const std::size_t room = free_g2 + inactive_g2.size();
    ++in_flight_;
    if (copy.blocks.size() > room) {
      for (const Id id : copy.blocks) {
        expected_.erase(id);
      }
      copy.blocks.clear();
      end_copy(number);
      return;
    }
    const std::size_t count = copy.blocks.size();
    for (std::size_t i = std::min(count, free_g2); i < count; ++i) {
      const Id id = inactive_g2.front();
      inactive_g2.pop_front();
      parent_in_g2_.erase(id);
      events.push_back(in(CacheLevel::kG2, removed({id})));
    }
    coming_ += count;
    down_free_ = std::max(down_free_, clock_) + count;
    moving_[{down_free_, next_transfer_++}] = {.is_load = false, .number = number};
  }
  void end_copy(std::size_t number) {
    const Copy copy = copies_[number];
    copies_.erase(number);
    for (std::size_t i = 0; i < copy.blocks.size(); ++i) {
      const Id id = copy.blocks[i];
      expected_.erase(id);
      parent_in_g2_[id] = copy.parents[i];
      inactive_g2.push_back(id);
      events.push_back(in(CacheLevel::kG2, stored({id}, copy.parents[i])));
    }
    coming_ -= copy.blocks.size();
    --in_flight_;
    if (Hold& hold = holds_[copy.hold]; --hold.copies == 0) {
      quarantined -= hold.blocks;
    }
  }
  void stop_reading(Ids ids) {
    std::ranges::reverse(ids);
    for (const Id id : ids) {
      if (--read_[id] == 0) {
        read_.erase(id);
        inactive_g2.push_back(id);
      }
    }
  }
  void land(std::size_t number) {
    const Load load = loads_.extract(number).mapped();
    Ids run;
    std::optional<Id> parent;
    const auto flush = [&] {
      if (!run.empty()) {
        events.push_back(stored(run, parent));
      }
      run.clear();
    };
    for (std::size_t i = 0; i < load.blocks.size(); ++i) {
      const Id id = load.blocks[i];
      --reserved;
      if (in_g1(id)) {
        flush();
        continue;
      }
      parent = run.empty() ? load.parents[i] : parent;
      run.push_back(id);
      parent_in_g1_[id] = load.parents[i];
      inactive.push_back(id);
    }
    flush();
    unpin(load.prefix);
    landed.push_back(number);
  }

  const Options options_;
  std::set<PartialId> partials_;
  std::map<Id, std::size_t> pins_;
  std::map<Id, std::optional<Id>> parent_in_g1_;
  std::map<Id, std::optional<Id>> parent_in_g2_;  // of the blocks in G2
  std::map<Id, std::size_t> read_;                // blocks of G2 that loads pin
  std::set<Id> expected_;
  std::size_t coming_ = 0;  // blocks of G2 that are being written
  std::map<std::size_t, Copy> copies_;
  std::map<std::size_t, Hold> holds_;
  std::map<std::size_t, Load> loads_;
  std::deque<std::size_t> waiting_;
  std::size_t in_flight_ = 0;
  std::map<std::pair<std::uint64_t, std::size_t>, Moved> moving_;  // by end, then start
  std::vector<std::size_t> finished_;
  std::uint64_t clock_ = 0;
  std::uint64_t down_free_ = 0;
  std::uint64_t up_free_ = 0;
  std::size_t next_number_ = 0;
  std::size_t next_transfer_ = 0;
};

}  // namespace cairn::sim
