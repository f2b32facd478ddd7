// CopyPlan::check() and expand(): what a plan makes of a list of blocks.
#include <algorithm>
#include <array>
#include <string>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {
namespace {

// A number that stands twice, if one does. Lists in order, the usual ones, take one pass and no memory.
struct Twice {
  bool found = false;
  std::uint32_t number = 0;
};

Twice find_twice(std::vector<std::uint32_t>&& numbers) {
  std::ranges::sort(numbers);
  const auto twice = std::ranges::adjacent_find(numbers);
  return twice == numbers.end() ? Twice{} : Twice{true, *twice};
}

Twice find_twice(std::span<const BlockPair> pairs, std::uint32_t blocks) {
  const bool ascending = std::ranges::is_sorted(pairs, std::ranges::less_equal{}, &BlockPair::destination);
  if (ascending) {
    return {};
  }
  // A bit for each block of the layout, unless the list is short against it.
  if (blocks / 256 > pairs.size()) {
    std::vector<std::uint32_t> numbers;
    numbers.reserve(pairs.size());
    for (const BlockPair& pair : pairs) {
      numbers.push_back(pair.destination);
    }
    return find_twice(std::move(numbers));
  }
  std::vector<bool> seen(blocks, false);
  for (const BlockPair& pair : pairs) {
    if (seen[pair.destination]) {
      return {true, pair.destination};
    }
    seen[pair.destination] = true;
  }
  return {};
}

}  // namespace

Status CopyPlan::check(std::span<const BlockPair> pairs) const {
  if (pairs.size() > ~std::uint32_t{0}) {
    return fail(ErrorCode::kOutOfRange, str_cat(pairs.size(), " pairs of blocks; a transfer has less than 2^32"));
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].source >= source_->blocks()) {
      return fail(ErrorCode::kOutOfRange, str_cat("pair ", i, ": source block ", pairs[i].source, "; the source has ",
                                                  source_->blocks(), " blocks"));
    }
    if (pairs[i].destination >= destination_->blocks()) {
      return fail(ErrorCode::kOutOfRange, str_cat("pair ", i, ": destination block ", pairs[i].destination,
                                                  "; the destination has ", destination_->blocks(), " blocks"));
    }
  }
  if (const Twice twice = find_twice(pairs, destination_->blocks()); twice.found) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("destination block ", twice.number, " is written twice; which bytes it would have is chance"));
  }
  if (same_places_) {
    std::vector<std::uint32_t> written;
    written.reserve(pairs.size());
    for (const BlockPair& pair : pairs) {
      written.push_back(pair.destination);
    }
    std::ranges::sort(written);
    for (const BlockPair& pair : pairs) {
      if (std::ranges::binary_search(written, pair.source)) {
        return fail(
            ErrorCode::kInvalidArgument,
            str_cat("block ", pair.source, " is read and written by one transfer within a layout; make it two"));
      }
    }
  }
  return {};
}

// One call of expand().
class CopyPlan::Expansion {
 public:
  Expansion(const CopyPlan& plan, std::uint64_t max_bytes, std::vector<Copy>& out)
      : plan_(plan), max_bytes_(max_bytes), out_(out) {}

  // Pairs that follow each other in both layouts.
  void add_stretch(std::span<const BlockPair> pairs, std::uint32_t first_pair) {
    stretch_begin_ = out_.size();
    const auto is_by_pair = [&](const Neighbours& group) {
      return group.order == Order::kByPair || (group.order == Order::kByStretch && pairs.size() == 1);
    };
    bool any_by_pair = false;
    for (const Neighbours& group : plan_.neighbours_) {
      if (is_by_pair(group)) {
        any_by_pair = true;
      } else if (group.order == Order::kByStretch) {
        add_group(group, pairs, first_pair);
      } else {
        add_sorted(group, pairs, first_pair);
      }
    }
    for (std::uint32_t i = 0; any_by_pair && i < pairs.size(); ++i) {
      for (const Neighbours& group : plan_.neighbours_) {
        if (is_by_pair(group)) {
          add_group(group, pairs.subspan(i, 1), first_pair + i);
        }
      }
    }
    const std::span<Copy> added = std::span(out_).subspan(stretch_begin_);
    if (!std::ranges::is_sorted(added, {}, &Copy::first_pair)) {
      sort_by_pair(added, first_pair, pairs.size());
    }
  }

 private:
  [[nodiscard]] std::span<const Box> boxes_of(const Neighbours& group) const {
    return plan_.boxes().subspan(group.first_box, group.boxes);
  }

  // In the order of the destination's addresses.
  void add_group(const Neighbours& group, std::span<const BlockPair> pairs, std::uint32_t first_pair) {
    const auto add_runs = [&](const Box& box, std::span<const BlockPair> blocks, std::uint32_t pair_of_first) {
      for_each_run(box, blocks, pair_of_first,
                   [&](std::uint64_t from, std::uint64_t to, std::uint32_t pair) { add(box, from, to, pair); });
    };
    if (group.boxes == 1) {
      add_runs(boxes_of(group).front(), pairs, first_pair);
      return;
    }
    for (std::uint32_t i = 0; i < pairs.size(); ++i) {
      for (const Box& box : boxes_of(group)) {
        add_runs(box, pairs.subspan(i, 1), first_pair + i);
      }
    }
  }

  void add_sorted(const Neighbours& group, std::span<const BlockPair> pairs, std::uint32_t first_pair) {
    struct Run {
      const Box* box;
      std::uint64_t from;
      std::uint64_t to;
      std::uint32_t pair;
    };
    std::vector<Run> runs;
    for (const Box& box : boxes_of(group)) {
      for_each_run(box, pairs, first_pair, [&](std::uint64_t from, std::uint64_t to, std::uint32_t pair) {
        runs.push_back({&box, from, to, pair});
      });
    }
    std::ranges::sort(runs, {}, &Run::to);
    for (const Run& run : runs) {
      add(*run.box, run.from, run.to, run.pair);
    }
  }

  // Keeps the order of copies that begin with one pair. By counting: sorting would take longer than all the rest.
  void sort_by_pair(std::span<Copy> copies, std::uint32_t first_pair, std::size_t pairs) {
    sorted_.assign(copies.begin(), copies.end());
    next_of_.assign(pairs + 1, 0);
    for (const Copy& copy : sorted_) {
      next_of_[copy.first_pair - first_pair + 1] += 1;
    }
    for (std::size_t i = 1; i < next_of_.size(); ++i) {
      next_of_[i] += next_of_[i - 1];
    }
    for (const Copy& copy : sorted_) {
      copies[next_of_[copy.first_pair - first_pair]++] = copy;
    }
  }

  // Counts through the levels outside the run, and through the blocks as one more of them, each at its place.
  template <typename Visit>
  static void for_each_run(const Box& box, std::span<const BlockPair> pairs, std::uint32_t first_pair, Visit visit) {
    struct Counter {
      std::uint64_t from_step;
      std::uint64_t to_step;
      std::uint32_t count;
      std::uint32_t pair_step;
      std::uint32_t index;
    };
    std::array<Counter, 5> counters = {};
    std::size_t used = 0;
    const auto blocks = static_cast<std::uint32_t>(pairs.size());
    bool block_met = blocks == 1;
    const auto meet_block = [&] {
      counters[used++] = {box.source_block_step, box.destination_block_step, blocks, 1, 0};
      block_met = true;
    };
    for (std::size_t i = box.run_levels; i < box.levels.size() && box.levels[i].count > 1; ++i) {
      const Level& level = box.levels[i];
      if (!block_met && box.destination_block_step < level.destination_step) {
        meet_block();
      }
      counters[used++] = {level.source_step, level.destination_step, level.count, 0, 0};
    }
    if (!block_met) {
      meet_block();
    }
    std::uint64_t from = box.source_offset + pairs.front().source * box.source_block_step;
    std::uint64_t to = box.destination_offset + pairs.front().destination * box.destination_block_step;
    std::uint32_t pair = first_pair;
    while (true) {
      visit(from, to, pair);
      std::size_t at = 0;
      for (; at < used; ++at) {
        Counter& counter = counters[at];
        if (++counter.index < counter.count) {
          from += counter.from_step;
          to += counter.to_step;
          pair += counter.pair_step;
          break;
        }
        from -= (counter.count - 1) * counter.from_step;
        to -= (counter.count - 1) * counter.to_step;
        pair -= (counter.count - 1) * counter.pair_step;
        counter.index = 0;
      }
      if (at == used) {
        return;
      }
    }
  }

  void add(const Box& box, std::uint64_t from, std::uint64_t to, std::uint32_t pair) {
    std::uint64_t bytes = box.run_bytes;
    if (out_.size() > stretch_begin_) {
      Copy& last = out_.back();
      // A copy names its pairs by the first and how many, so those of what joins it must be among them or the next.
      if (last.destination_offset + last.bytes == to && last.source_offset + last.bytes == from &&
          last.destination_region == box.destination_region && last.source_region == box.source_region &&
          pair >= last.first_pair && pair - last.first_pair <= last.pairs && last.bytes < max_bytes_) {
        const std::uint64_t joined = std::min(bytes, max_bytes_ - last.bytes);
        last.bytes += joined;
        last.pairs = std::max(last.pairs, pair - last.first_pair + 1);
        from += joined;
        to += joined;
        bytes -= joined;
      }
    }
    while (bytes > 0) {
      const std::uint64_t piece = std::min(bytes, max_bytes_);
      out_.push_back({box.source_region, box.destination_region, from, to, piece, pair, 1});
      from += piece;
      to += piece;
      bytes -= piece;
    }
  }

  const CopyPlan& plan_;
  const std::uint64_t max_bytes_;
  std::vector<Copy>& out_;
  std::size_t stretch_begin_ = 0;
  std::vector<Copy> sorted_;          // of sort_by_pair()
  std::vector<std::size_t> next_of_;  // the same: where the next copy of each pair goes
};

void CopyPlan::expand(std::span<const BlockPair> pairs, std::uint64_t max_bytes, std::vector<Copy>& out) const {
  CAIRN_CHECK(max_bytes > 0, "copies of at most 0 bytes would never end");
  out.clear();
  Expansion expansion(*this, max_bytes, out);
  for (std::size_t first = 0; first < pairs.size();) {
    std::size_t after = first + 1;
    while (after < pairs.size() && pairs[after].source == pairs[after - 1].source + 1 &&
           pairs[after].destination == pairs[after - 1].destination + 1) {
      ++after;
    }
    expansion.add_stretch(pairs.subspan(first, after - first), static_cast<std::uint32_t>(first));
    first = after;
  }
}

}  // namespace cairn
