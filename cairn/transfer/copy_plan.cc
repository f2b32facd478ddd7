#include "cairn/transfer/copy_plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/row_overlap.h"

namespace cairn {
namespace {

Status check_shapes(const KvShape& source, const KvShape& destination) {
  const struct {
    std::string_view name;
    std::uint32_t source;
    std::uint32_t destination;
  } numbers[] = {{"layers", source.layers, destination.layers},
                 {"kv", source.kv, destination.kv},
                 {"page_size", source.page_size, destination.page_size},
                 {"head_size", source.head_size, destination.head_size},
                 {"element_bits", source.element_bits, destination.element_bits}};
  for (const auto& number : numbers) {
    if (number.source != number.destination) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("the source has ", number.name, " ", number.source, " and the destination ",
                          number.destination, "; layouts of one plan differ in heads at most"));
    }
  }
  return {};
}

// Whether `count` from `first` on are among `all`, without overflow.
bool within(std::uint32_t first, std::uint32_t count, std::uint32_t all) {
  return first <= all && count <= all - first;
}

// The part with its zeros filled in.
Result<BlockPart> resolve(const BlockPart& part, const KvShape& source, const KvShape& destination) {
  BlockPart full = part;
  if (part.first_layer >= source.layers || !within(part.first_layer, part.layers, source.layers)) {
    return fail(ErrorCode::kOutOfRange,
                str_cat("layers ", part.first_layer, " and ", part.layers, " from there; a block has ", source.layers));
  }
  if (part.layers == 0) {
    full.layers = source.layers - part.first_layer;
  }
  if (part.source_head >= source.heads || !within(part.source_head, part.heads, source.heads)) {
    return fail(ErrorCode::kOutOfRange, str_cat("source head ", part.source_head, " and ", part.heads,
                                                " from there; the source has ", source.heads));
  }
  if (part.heads == 0) {
    full.heads = source.heads - part.source_head;
  }
  if (!within(part.destination_head, full.heads, destination.heads)) {
    return fail(ErrorCode::kOutOfRange, str_cat(full.heads, " heads from destination head ", part.destination_head,
                                                " on; the destination has ", destination.heads));
  }
  if (part.whole_heads == 0) {
    if (part.whole_head != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("whole_head ", part.whole_head, " without whole_heads; give how many heads the whole has"));
    }
    full.whole_heads = source.heads;
    full.whole_head = part.source_head;
  }
  if (!within(full.whole_head, full.heads, full.whole_heads)) {
    return fail(ErrorCode::kOutOfRange, str_cat(full.heads, " heads from head ", full.whole_head,
                                                " of the whole on; the whole has ", full.whole_heads));
  }
  if (part.whole_layers == 0) {
    if (part.whole_layer != 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("whole_layer ", part.whole_layer,
                                                       " without whole_layers; give how many layers the whole has"));
    }
    full.whole_layers = source.layers;
    full.whole_layer = part.first_layer;
  }
  if (!within(full.whole_layer, full.layers, full.whole_layers)) {
    return fail(ErrorCode::kOutOfRange, str_cat(full.layers, " layers from layer ", full.whole_layer,
                                                " of the whole on; the whole has ", full.whole_layers));
  }
  return full;
}

// The steps of dimensions with but one index say nothing; without them places can be compared.
LayerPlace plain_place(const BlockLayout& layout, std::uint32_t layer, std::uint32_t head, std::uint32_t heads) {
  LayerPlace place = layout.layers()[layer];
  place.offset += head * place.head_step;
  place.block_step = layout.blocks() == 1 ? 0 : place.block_step;
  place.kv_step = layout.shape().kv == 1 ? 0 : place.kv_step;
  place.token_step = layout.shape().page_size == 1 ? 0 : place.token_step;
  place.head_step = heads == 1 ? 0 : place.head_step;
  return place;
}

// Whether `next` lies `step` beyond `place`, in the same way; any step above 0 will do where `step` is 0.
bool follows(const LayerPlace& place, const LayerPlace& next, std::uint64_t step) {
  LayerPlace moved = next;
  moved.offset = place.offset;
  return moved == place && next.offset > place.offset && (step == 0 || next.offset - place.offset == step);
}

bool same_memory(const Region& one, const Region& other) {
  return one.kind() == other.kind() && one.base() == other.base() && one.file() == other.file();
}

bool same_places(const BlockLayout& source, const BlockLayout& destination) {
  return source.shape() == destination.shape() && std::ranges::equal(source.layers(), destination.layers()) &&
         std::ranges::equal(source.regions(), destination.regions(),
                            [](const RegionPtr& one, const RegionPtr& other) { return same_memory(*one, *other); });
}

// Orders the levels, finds the run and what follows from it.
void finish_box(CopyPlan::Box& box, std::uint64_t row_bytes) {
  std::ranges::stable_sort(box.levels, [](const CopyPlan::Level& a, const CopyPlan::Level& b) {
    return std::tuple(a.count == 1, a.destination_step) < std::tuple(b.count == 1, b.destination_step);
  });
  box.run_bytes = row_bytes;
  for (const CopyPlan::Level& level : box.levels) {
    if (level.count == 1 || level.source_step != box.run_bytes || level.destination_step != box.run_bytes) {
      break;
    }
    box.run_bytes *= level.count;
    box.run_levels += 1;
  }
  for (std::uint32_t i = box.run_levels; i < box.levels.size(); ++i) {
    box.runs *= box.levels[i].count;
  }
}

struct Span {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
};

// From the first row of a block to the end of the row with the highest indices.
Span span_of(const CopyPlan::Box& box, std::uint64_t row_bytes) {
  Span span{row_bytes, row_bytes};
  for (const CopyPlan::Level& level : box.levels) {
    span.source += (level.count - 1) * level.source_step;
    span.destination += (level.count - 1) * level.destination_step;
  }
  return span;
}

struct Nesting {
  bool nests = true;  // rows are met in the order of the destination's addresses by counting the levels up
  bool block_is_outermost = true;
  bool joins = false;  // the last row of a block's innermost levels is adjacent to the first of the next block
};

// The block taken as a level like the others, at the place that its step in the destination gives it.
Nesting nesting_of(const CopyPlan::Box& box, std::uint64_t blocks, std::uint64_t row_bytes) {
  Nesting nesting;
  Span inner{row_bytes, row_bytes};
  bool block_met = blocks == 1;
  const auto meet_block = [&] {
    block_met = true;
    nesting.nests = nesting.nests && box.destination_block_step >= inner.destination;
    nesting.joins = box.destination_block_step == inner.destination && box.source_block_step == inner.source;
    inner.destination += (blocks - 1) * box.destination_block_step;
  };
  for (const CopyPlan::Level& level : box.levels) {
    if (level.count == 1) {
      break;
    }
    if (!block_met && box.destination_block_step < level.destination_step) {
      meet_block();
      nesting.block_is_outermost = false;
    }
    nesting.nests = nesting.nests && level.destination_step >= inner.destination;
    inner.source += (level.count - 1) * level.source_step;
    inner.destination += (level.count - 1) * level.destination_step;
  }
  if (!block_met) {
    meet_block();
  }
  return nesting;
}

}  // namespace

Result<CopyPlanPtr> CopyPlan::make(BlockLayoutPtr source, BlockLayoutPtr destination, const BlockPart& part) {
  if (source == nullptr || destination == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "a plan takes two layouts; one is null");
  }
  CAIRN_TRY(check_shapes(source->shape(), destination->shape()));
  CAIRN_TRY_ASSIGN(BlockPart full, resolve(part, source->shape(), destination->shape()));
  KvShape whole = source->shape();
  whole.heads = full.whole_heads;
  whole.layers = full.whole_layers;
  CAIRN_TRY(whole.validate());
  const std::shared_ptr<CopyPlan> plan(new CopyPlan());
  plan->same_places_ = same_places(*source, *destination);
  plan->row_bytes_ = whole.row_bytes();
  if (!plan->same_places_) {
    const internal::SharedByte shared =
        internal::find_shared_byte(internal::row_sets(*source), internal::row_sets(*destination), plan->row_bytes_);
    if (shared.sharing != internal::Sharing::kNone) {
      return fail(
          ErrorCode::kInvalidArgument,
          str_cat("source and destination lie in the same memory and are arranged differently",
                  shared.sharing == internal::Sharing::kFound ? str_cat(": they share bytes of ", shared.rows) : "",
                  "; give them memory of their own"));
    }
  }
  plan->source_ = std::move(source);
  plan->destination_ = std::move(destination);
  plan->make_boxes(full, whole);
  plan->part_ = part;
  plan->whole_block_bytes_ = whole.block_bytes();
  for (const Box& box : plan->boxes_) {
    plan->bytes_per_block_ += box.run_bytes * box.runs;
    plan->runs_per_block_ += box.runs;
  }
  return CopyPlanPtr(plan);
}

void CopyPlan::make_boxes(const BlockPart& part, const KvShape& whole) {
  const auto source_place = [&](std::uint32_t layer) {
    return plain_place(*source_, layer, part.source_head, part.heads);
  };
  const auto destination_place = [&](std::uint32_t layer) {
    return plain_place(*destination_, layer, part.destination_head, part.heads);
  };
  const std::uint32_t end = part.first_layer + part.layers;
  for (std::uint32_t first = part.first_layer; first < end;) {
    const LayerPlace from = source_place(first);
    const LayerPlace to = destination_place(first);
    Level layers{1, 0, 0, whole.row(1, 0, 0, 0)};
    LayerPlace last_from = from;
    LayerPlace last_to = to;
    for (std::uint32_t next = first + 1; next < end; ++next) {
      const LayerPlace next_from = source_place(next);
      const LayerPlace next_to = destination_place(next);
      if (!follows(last_from, next_from, layers.source_step) || !follows(last_to, next_to, layers.destination_step)) {
        break;
      }
      layers.source_step = next_from.offset - last_from.offset;
      layers.destination_step = next_to.offset - last_to.offset;
      layers.count += 1;
      last_from = next_from;
      last_to = next_to;
    }
    Box box;
    box.source_region = from.region;
    box.destination_region = to.region;
    box.source_offset = from.offset;
    box.destination_offset = to.offset;
    box.source_block_step = from.block_step;
    box.destination_block_step = to.block_step;
    box.first_row = whole.row(part.whole_layer + (first - part.first_layer), 0, 0, part.whole_head);
    box.levels = {Level{part.heads, from.head_step, to.head_step, 1},
                  Level{whole.page_size, from.token_step, to.token_step, whole.row(0, 0, 1, 0)},
                  Level{whole.kv, from.kv_step, to.kv_step, whole.row(0, 1, 0, 0)}, layers};
    finish_box(box, row_bytes_);
    boxes_.push_back(box);
    first += layers.count;
  }
  std::ranges::stable_sort(boxes_, {},
                           [](const Box& box) { return std::tuple(box.destination_region, box.destination_offset); });
  group_boxes();
}

void CopyPlan::group_boxes() {
  const std::uint64_t blocks = destination_->blocks();
  for (std::uint32_t first = 0; first < boxes_.size();) {
    std::uint64_t end = 0;       // of the rows of all blocks, so far
    std::uint32_t last = first;  // the box that ends there
    std::uint32_t after = first;
    do {
      const std::uint64_t box_end = boxes_[after].destination_offset + span_of(boxes_[after], row_bytes_).destination +
                                    (blocks - 1) * boxes_[after].destination_block_step;
      if (box_end > end) {
        end = box_end;
        last = after;
      }
      ++after;
    } while (after < boxes_.size() && boxes_[after].destination_region == boxes_[first].destination_region &&
             (boxes_[after].destination_offset < end ||
              (boxes_[after].destination_offset == end && may_touch(boxes_[last], boxes_[after], blocks))));
    neighbours_.push_back({first, after - first, order_of(std::span(boxes_).subspan(first, after - first))});
    first = after;
  }
}

// Whether a row of the last block of `box` may be adjacent in the source to the row of the first block of `next`, when all
// `blocks` of the destination are written in order.
bool CopyPlan::may_touch(const Box& box, const Box& next, std::uint64_t blocks) const {
  if (box.source_region != next.source_region) {
    return false;
  }
  const std::uint64_t end = box.source_offset + span_of(box, row_bytes_).source + (blocks - 1) * box.source_block_step;
  return box.source_block_step != next.source_block_step || end == next.source_offset;
}

CopyPlan::Order CopyPlan::order_of(std::span<const Box> boxes) const {
  const std::uint64_t blocks = destination_->blocks();
  const Box& first = boxes.front();
  const Box& last = boxes.back();
  if (boxes.size() == 1) {
    const Nesting nesting = nesting_of(first, blocks, row_bytes_);
    return !nesting.nests ? Order::kSorted : nesting.joins ? Order::kByStretch : Order::kByPair;
  }
  // Several boxes are met in order when each ends before the next begins, and all before the next block does.
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Nesting nesting = nesting_of(boxes[i], blocks, row_bytes_);
    const std::uint64_t end = boxes[i].destination_offset + span_of(boxes[i], row_bytes_).destination;
    if (!nesting.nests || !nesting.block_is_outermost ||
        boxes[i].destination_block_step != first.destination_block_step ||
        (i + 1 < boxes.size() && end > boxes[i + 1].destination_offset) ||
        (blocks > 1 && end > first.destination_offset + first.destination_block_step)) {
      return Order::kSorted;
    }
  }
  const Span span = span_of(last, row_bytes_);
  const bool joins =
      last.source_region == first.source_region &&
      last.destination_offset + span.destination == first.destination_offset + first.destination_block_step &&
      (last.source_block_step != first.source_block_step ||  // then it does for some blocks and not for others
       last.source_offset + span.source == first.source_offset + first.source_block_step);
  return joins ? Order::kByStretch : Order::kByPair;
}

namespace {

// A number that occurs twice, if any. Sorted lists, the usual case, take one pass and no memory.
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
