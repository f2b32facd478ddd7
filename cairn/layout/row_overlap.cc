#include "cairn/layout/row_overlap.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "cairn/base/str_cat.h"

namespace cairn::internal {
namespace {

// The most values to try; two sets whose steps nest take some tens.
constexpr std::int64_t kMostTries = 4'000'000;

constexpr int kMemorySpace = -2;      // different from every descriptor, and from kNoFile
constexpr int kElsewhereSpaces = -3;  // and down, one for each kind of memory

// One unknown: the distance of two rows in a dimension, or the index of one of them if their steps differ.
struct Unknown {
  std::int64_t step = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
  Dimension dimension = kBlockDim;
};

std::int64_t floor_div(std::int64_t number, std::int64_t by) {
  return number / by - ((number % by != 0 && number < 0) ? 1 : 0);
}
std::int64_t ceil_div(std::int64_t number, std::int64_t by) { return -floor_div(-number, by); }

class PairSearch {
 public:
  PairSearch(const RowSet& one, const RowSet& other, std::uint64_t row_bytes, std::int64_t& tries)
      : one_(one),
        other_(other),
        same_(&one == &other),
        row_bytes_(static_cast<std::int64_t>(row_bytes)),
        tries_(tries) {
    for (int d = 0; d < kDimensions; ++d) {
      const auto dimension = static_cast<Dimension>(d);
      const auto most_one = static_cast<std::int64_t>(one.counts[d]) - 1;
      const auto most_other = static_cast<std::int64_t>(other.counts[d]) - 1;
      if (one.steps[d] == other.steps[d]) {
        add(one.steps[d], -most_other, most_one, dimension);
      } else {
        add(one.steps[d], 0, most_one, dimension);
        add(other.steps[d], -most_other, 0, dimension);
      }
    }
    std::stable_sort(unknowns_.begin(), unknowns_.end(),
                     [](const Unknown& a, const Unknown& b) { return a.step > b.step; });
    least_.assign(unknowns_.size() + 1, 0);
    most_.assign(unknowns_.size() + 1, 0);
    for (std::size_t i = unknowns_.size(); i-- > 0;) {
      least_[i] = least_[i + 1] + unknowns_[i].low * unknowns_[i].step;
      most_[i] = most_[i + 1] + unknowns_[i].high * unknowns_[i].step;
    }
    values_.assign(unknowns_.size(), 0);
  }

  SharedByte run() {
    const auto distance = static_cast<std::int64_t>(one_.base - other_.base);
    if (!try_from(0, distance, same_)) {
      return {tries_ > 0 ? Sharing::kNone : Sharing::kUnknown};
    }
    return {Sharing::kFound, str_cat(row_name(one_, 1), " and ", row_name(other_, -1))};
  }

 private:
  void add(std::uint64_t step, std::int64_t low, std::int64_t high, Dimension dimension) {
    if (low < high) {
      unknowns_.push_back({static_cast<std::int64_t>(step), low, high, dimension});
    }
  }

  // `so_far` is the distance of the two rows from the unknowns chosen so far; `equal`: all of these are 0.
  bool try_from(std::size_t index, std::int64_t so_far, bool equal) {
    if (index == unknowns_.size()) {
      return std::abs(so_far) < row_bytes_ && !equal;
    }
    const Unknown& unknown = unknowns_[index];
    const std::int64_t from = std::max(unknown.low, ceil_div(1 - row_bytes_ - so_far - most_[index + 1], unknown.step));
    const std::int64_t to =
        std::min(unknown.high, floor_div(row_bytes_ - 1 - so_far - least_[index + 1], unknown.step));
    for (std::int64_t value = from; value <= to; ++value) {
      if (--tries_ <= 0) {
        return false;
      }
      values_[index] = value;
      if (try_from(index + 1, so_far + value * unknown.step, equal && value == 0)) {
        return true;
      }
    }
    return false;
  }

  std::string row_name(const RowSet& set, std::int64_t sign) const {
    std::array<std::int64_t, kDimensions> at = {};
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      at[unknowns_[i].dimension] += std::max<std::int64_t>(sign * values_[i], 0);
    }
    return str_cat("block ", at[kBlockDim], ", layer ", set.first_layer + at[kLayerDim], ", ",
                   set.counts[kKvDim] == 1 ? "" : (at[kKvDim] == 0 ? "K, " : "V, "), "token ", at[kTokenDim], ", head ",
                   at[kHeadDim]);
  }

  const RowSet& one_;
  const RowSet& other_;
  const bool same_;
  const std::int64_t row_bytes_;
  std::int64_t& tries_;
  std::vector<Unknown> unknowns_;
  std::vector<std::int64_t> least_;  // the least that the unknowns from here on can add
  std::vector<std::int64_t> most_;
  std::vector<std::int64_t> values_;
};

bool apart(const RowSet& one, const RowSet& other) {
  return one.space != other.space || one.base >= other.base + other.bytes || other.base >= one.base + one.bytes;
}

// Whether `next` is one step beyond `layer`, which begins or continues a set of `set.counts[kLayerDim]` layers.
bool continues(const RowSet& set, const LayerPlace& layer, const LayerPlace& next) {
  if (next.region != layer.region || next.block_step != layer.block_step || next.kv_step != layer.kv_step ||
      next.token_step != layer.token_step || next.head_step != layer.head_step || next.offset <= layer.offset) {
    return false;
  }
  return set.counts[kLayerDim] == 1 || next.offset - layer.offset == set.steps[kLayerDim];
}

}  // namespace

std::vector<RowSet> row_sets(const KvShape& shape, std::uint32_t blocks, std::span<const LayerPlace> layers,
                             std::span<const RegionPtr> regions) {
  std::vector<RowSet> sets;
  for (std::uint32_t layer = 0; layer < layers.size(); ++layer) {
    const LayerPlace& place = layers[layer];
    if (!sets.empty() && continues(sets.back(), layers[layer - 1], place)) {
      RowSet& set = sets.back();
      const std::uint64_t step = place.offset - layers[layer - 1].offset;
      set.steps[kLayerDim] = step;
      set.counts[kLayerDim] += 1;
      set.bytes += step;
      continue;
    }
    const Region& region = *regions[place.region];
    RowSet set;
    const bool is_file = region.kind() == MemoryKind::kFile;
    set.space = region.is_elsewhere() ? kElsewhereSpaces - static_cast<int>(region.kind())
                : is_file             ? region.file()
                                      : kMemorySpace;
    set.base = (is_file ? 0 : reinterpret_cast<std::uintptr_t>(region.base())) + place.offset;
    set.first_layer = layer;
    set.counts = {blocks, 1, shape.kv, shape.page_size, shape.heads};
    set.steps = {place.block_step, 0, place.kv_step, place.token_step, place.head_step};
    set.bytes = shape.row_bytes();
    for (int d = 0; d < kDimensions; ++d) {
      set.bytes += (set.counts[d] - 1) * set.steps[d];
    }
    sets.push_back(set);
  }
  return sets;
}

std::vector<RowSet> row_sets(const BlockLayout& layout) {
  return row_sets(layout.shape(), layout.blocks(), layout.layers(), layout.regions());
}

SharedByte find_shared_byte(std::span<const RowSet> sets, std::uint64_t row_bytes) {
  std::int64_t tries = kMostTries;
  std::vector<const RowSet*> by_base;
  for (const RowSet& set : sets) {
    by_base.push_back(&set);
  }
  std::sort(by_base.begin(), by_base.end(), [](const RowSet* a, const RowSet* b) {
    return a->space != b->space ? a->space < b->space : a->base < b->base;
  });
  for (std::size_t i = 0; i < by_base.size(); ++i) {
    for (std::size_t j = i; j < by_base.size() && (j == i || !apart(*by_base[i], *by_base[j])); ++j) {
      SharedByte found = PairSearch(*by_base[i], *by_base[j], row_bytes, --tries).run();
      if (found.sharing != Sharing::kNone) {
        return found;
      }
    }
  }
  return {};
}

SharedByte find_shared_byte(std::span<const RowSet> ones, std::span<const RowSet> others, std::uint64_t row_bytes) {
  std::int64_t tries = kMostTries;
  for (const RowSet& one : ones) {
    for (const RowSet& other : others) {
      if (apart(one, other)) {
        continue;
      }
      SharedByte found = PairSearch(one, other, row_bytes, --tries).run();
      if (found.sharing != Sharing::kNone) {
        return found;
      }
    }
  }
  return {};
}

}  // namespace cairn::internal
