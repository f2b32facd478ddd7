#include "cairn/transfer/copy_plan.h"

#include <algorithm>
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
  box.rows_in_sequence = true;
  std::uint64_t rows = 1;
  for (const CopyPlan::Level& level : box.levels) {
    if (level.count == 1 || level.source_step != box.run_bytes || level.destination_step != box.run_bytes) {
      break;
    }
    box.rows_in_sequence = box.rows_in_sequence && level.row_step == rows;
    rows *= level.count;
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
  if (Status fit = check_shapes(source->shape(), destination->shape()); !fit) {
    return Unexpected(fit.error());
  }
  Result<BlockPart> full = resolve(part, source->shape(), destination->shape());
  if (!full) {
    return Unexpected(full.error());
  }
  KvShape whole = source->shape();
  whole.heads = full->whole_heads;
  if (Status valid = whole.validate(); !valid) {
    return Unexpected(valid.error());
  }
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
  plan->make_boxes(*full, whole);
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
    box.first_row = whole.row(first, 0, 0, part.whole_head);
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

}  // namespace cairn
