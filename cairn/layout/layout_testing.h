// For tests: layouts in plain heap memory with guard areas around every region, whose bytes are distinct and can be
// compared. Use TestLayout::make(); a test that moves blocks makes one for each side.
//
//   TestLayout from = TestLayout::make({shape, Arrangement::kLayersKvNhd, 8, 1});
//   TestLayout to = TestLayout::make({shape, Arrangement::kContiguousHnd, 8, 4096});
//   from.fill(1);
//   ... move block 3 of from.layout() to block 5 of to.layout() ...
//   EXPECT_TRUE(to.holds(5, from, 3));      every row of the block
//   EXPECT_TRUE(to.untouched_but({5}));     guards, paddings and all other blocks are as they were
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/layout/block_layout.h"

namespace cairn::testing {

// One region of the heap, between two guards.
class TestRegion {
 public:
  static constexpr std::uint64_t kGuardBytes = 256;
  static constexpr std::byte kGuardByte{0xA5};

  // `skew`: how far beyond a multiple of the alignment the region begins.
  explicit TestRegion(std::uint64_t size, std::uint64_t alignment = 64, std::uint64_t skew = 0,
                      MemoryKind kind = MemoryKind::kSystem) {
    const std::uint64_t unit = std::max<std::uint64_t>(alignment, 64);
    const std::uint64_t before = (kGuardBytes + unit - 1) / unit * unit + skew;
    const std::uint64_t all = (before + size + kGuardBytes + unit - 1) / unit * unit;
    storage_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(std::aligned_alloc(unit, all)), std::free);
    CAIRN_CHECK(storage_ != nullptr, "memory for a test region");
    std::memset(storage_.get(), static_cast<int>(kGuardByte), all);
    all_ = {storage_.get(), all};
    inside_ = all_.subspan(before, size);
    RegionFacts facts;
    facts.kind = kind;
    facts.base = inside_.data();
    facts.size = size;
    facts.alignment = alignment;
    region_ = std::make_shared<Region>(facts, [keep = storage_] {});
  }

  [[nodiscard]] const RegionPtr& region() const { return region_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return inside_; }
  [[nodiscard]] bool guards_intact() const {
    return std::all_of(all_.data(), inside_.data(), [](std::byte b) { return b == kGuardByte; }) &&
           std::all_of(inside_.data() + inside_.size(), all_.data() + all_.size(),
                       [](std::byte b) { return b == kGuardByte; });
  }

 private:
  std::shared_ptr<std::byte> storage_;
  std::span<std::byte> all_;
  std::span<std::byte> inside_;
  RegionPtr region_;
};

class TestLayout {
 public:
  [[nodiscard]] static TestLayout make(const BlockLayout::Options& options, MemoryKind kind = MemoryKind::kSystem) {
    Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(options);
    CAIRN_CHECK(sizes.has_value(), sizes.has_value() ? "" : sizes.error().message);
    std::vector<TestRegion> regions;
    for (const std::uint64_t size : *sizes) {
      regions.emplace_back(size, options.alignment, 0, kind);
    }
    Result<BlockLayoutPtr> layout = BlockLayout::make(options, regions_of(regions));
    return TestLayout(std::move(layout), std::move(regions));
  }

  // An engine's tensors: places in regions of these sizes.
  [[nodiscard]] static TestLayout from_places(const KvShape& shape, std::uint32_t blocks,
                                              const std::vector<LayerPlace>& layers,
                                              const std::vector<std::uint64_t>& sizes) {
    std::vector<TestRegion> regions;
    for (const std::uint64_t size : sizes) {
      regions.emplace_back(size);
    }
    Result<BlockLayoutPtr> layout = BlockLayout::from_places(shape, blocks, layers, regions_of(regions));
    return TestLayout(std::move(layout), std::move(regions));
  }

  // An arrangement, or tensors such as engines have: dimensions in any order with gaps between, a region for all layers
  // or one for each, layers in any order and at uneven distances. With small shapes, from a seed.
  [[nodiscard]] static TestLayout random(const KvShape& shape, std::uint32_t blocks, std::mt19937_64& random);

  [[nodiscard]] const BlockLayoutPtr& layout() const { return layout_; }
  [[nodiscard]] const KvShape& shape() const { return layout_->shape(); }
  [[nodiscard]] std::span<const TestRegion> regions() const { return regions_; }

  // Other bytes everywhere, paddings too, for each seed; remembered for untouched_but().
  void fill(std::uint64_t seed) {
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    for (const TestRegion& region : regions_) {
      for (std::byte& byte : region.bytes()) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        byte = static_cast<std::byte>(state >> 56U);
      }
    }
    remember();
  }

  // untouched_but() compares with the present bytes from now on.
  void remember() {
    before_.clear();
    for (const TestRegion& region : regions_) {
      before_.emplace_back(region.bytes().begin(), region.bytes().end());
    }
  }

  [[nodiscard]] std::span<std::byte> row(std::uint32_t block, std::uint32_t layer, std::uint32_t k_or_v,
                                         std::uint32_t token, std::uint32_t head) const {
    const BlockLayout::Address at = layout_->address(block, layer, k_or_v, token, head);
    return regions_[at.region].bytes().subspan(at.offset, shape().row_bytes());
  }

  // The rows of a block one after the other, by their numbers: the same bytes whatever the arrangement.
  [[nodiscard]] std::vector<std::byte> gather(std::uint32_t block) const {
    std::vector<std::byte> rows(shape().block_bytes());
    std::byte* to = rows.data();
    for_each_row([&](std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token, std::uint32_t head) {
      const std::span<const std::byte> from = row(block, layer, k_or_v, token, head);
      std::memcpy(to, from.data(), from.size());
      to += from.size();
    });
    return rows;
  }

  // Block for block the same rows.
  [[nodiscard]] bool holds(std::uint32_t block, const TestLayout& other, std::uint32_t other_block) const {
    return gather(block) == other.gather(other_block);
  }

  // Guards are whole, and no byte but those of these blocks' rows has changed since fill() or remember().
  [[nodiscard]] bool untouched_but(std::span<const std::uint32_t> blocks) const {
    std::vector<std::vector<std::byte>> expected = before_;
    for (const std::uint32_t block : blocks) {
      for_each_row([&](std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token, std::uint32_t head) {
        const BlockLayout::Address at = layout_->address(block, layer, k_or_v, token, head);
        std::memcpy(expected[at.region].data() + at.offset, regions_[at.region].bytes().data() + at.offset,
                    shape().row_bytes());
      });
    }
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      if (!regions_[i].guards_intact() || !std::ranges::equal(regions_[i].bytes(), expected[i])) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool untouched_but(std::initializer_list<std::uint32_t> blocks) const {
    return untouched_but(std::span(blocks.begin(), blocks.size()));
  }

  template <typename Visit>
  void for_each_row(Visit visit) const {
    for (std::uint32_t layer = 0; layer < shape().layers; ++layer) {
      for (std::uint32_t k_or_v = 0; k_or_v < shape().kv; ++k_or_v) {
        for (std::uint32_t token = 0; token < shape().page_size; ++token) {
          for (std::uint32_t head = 0; head < shape().heads; ++head) {
            visit(layer, k_or_v, token, head);
          }
        }
      }
    }
  }

 private:
  TestLayout(Result<BlockLayoutPtr> layout, std::vector<TestRegion> regions) : regions_(std::move(regions)) {
    CAIRN_CHECK(layout.has_value(), layout.has_value() ? "" : layout.error().message);
    layout_ = *layout;
    remember();
  }

  [[nodiscard]] static std::vector<RegionPtr> regions_of(const std::vector<TestRegion>& regions) {
    std::vector<RegionPtr> made;
    for (const TestRegion& region : regions) {
      made.push_back(region.region());
    }
    return made;
  }

  BlockLayoutPtr layout_;
  std::vector<TestRegion> regions_;
  std::vector<std::vector<std::byte>> before_;
};

inline TestLayout TestLayout::random(const KvShape& shape, std::uint32_t blocks, std::mt19937_64& random) {
  const auto one_of = [&](std::uint64_t choices) { return static_cast<std::uint32_t>(random() % choices); };
  // Random steps for the given dimensions, with some gaps; returns the bytes that they span.
  struct Dimension {
    std::uint64_t count;
    std::uint64_t* step;
  };
  const auto gap = [&] { return one_of(3) == 0 ? one_of(2 * static_cast<std::uint32_t>(shape.row_bytes())) : 0; };
  const auto nest = [&](std::vector<Dimension> dimensions, std::uint64_t inner) {
    std::shuffle(dimensions.begin(), dimensions.end(), random);
    for (const Dimension& dimension : dimensions) {
      *dimension.step = inner + gap();
      inner = *dimension.step * dimension.count;
    }
    return inner;
  };
  std::vector<LayerPlace> layers(shape.layers);
  std::vector<std::uint64_t> sizes;
  LayerPlace steps;
  const Dimension block{blocks, &steps.block_step};
  const Dimension kv{shape.kv, &steps.kv_step};
  const Dimension token{shape.page_size, &steps.token_step};
  const Dimension head{shape.heads, &steps.head_step};
  switch (one_of(5)) {
    case 0:  // one tensor for all layers
    {
      std::uint64_t layer_step = 0;
      const std::uint64_t first = gap();
      sizes = {first + nest({block, {shape.layers, &layer_step}, kv, token, head}, shape.row_bytes())};
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        layers[layer] = steps;
        layers[layer].offset = first + layer * layer_step;
      }
      break;
    }
    case 1:  // a tensor a layer, each with steps of its own, in one region or in two
    {
      sizes.assign(1 + one_of(2), 0);
      std::vector<std::uint32_t> order(shape.layers);
      std::iota(order.begin(), order.end(), 0U);
      std::shuffle(order.begin(), order.end(), random);
      for (const std::uint32_t layer : order) {
        const std::uint64_t bytes = nest({block, kv, token, head}, shape.row_bytes());
        layers[layer] = steps;
        layers[layer].region = one_of(sizes.size());
        layers[layer].offset = sizes[layers[layer].region] + gap();
        sizes[layers[layer].region] = layers[layer].offset + bytes;
      }
      break;
    }
    case 2:  // all layers in a block, at uneven distances and in any order
    {
      std::vector<std::uint32_t> order(shape.layers);
      std::iota(order.begin(), order.end(), 0U);
      if (one_of(2) == 0) {
        std::shuffle(order.begin(), order.end(), random);
      }
      const std::uint64_t bytes = nest({kv, token, head}, shape.row_bytes());
      std::uint64_t end = 0;
      for (const std::uint32_t layer : order) {
        layers[layer] = steps;
        layers[layer].offset = end + gap();
        end = layers[layer].offset + bytes;
      }
      for (LayerPlace& layer : layers) {
        layer.block_step = end;
      }
      sizes = {end * blocks};
      break;
    }
    default:
      return make(
          {shape, kAllArrangements[one_of(std::size(kAllArrangements))], blocks, std::uint64_t{1} << one_of(8)});
  }
  return from_places(shape, blocks, layers, sizes);
}

}  // namespace cairn::testing
