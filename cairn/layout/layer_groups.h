// LayerGroups: the layers of a model whose layers differ (sliding windows, MLA, states of linear attention), as groups of
// equal layers; each group has its own shape and block size. LayoutGroups: the same with a layout for each group.
//
// Each group numbers its blocks on its own: block 5 of one group has nothing to do with block 5 of another. Groups may lie
// in the same memory, as engines overlay them; the engine gives a block to one group at a time.
//
// Thread safety: immutable values. LayoutGroups hold their layouts.
// Errors: make() refuses a layer in no group or in two, a group without a name, two groups of one name, a shape that does
// not fit the number of layers, and a layout of another shape.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"

namespace cairn {

struct LayerGroup {
  std::string name;
  // shape.layers is the number of layers of the group, or a multiple of it: 2 for each if K and V are separate tensors
  // (block_layout.h).
  KvShape shape;
  std::vector<std::uint32_t> layers;  // of the model, in the order of the shape
};

class LayerGroups {
 public:
  [[nodiscard]] static Result<LayerGroups> make(std::uint32_t model_layers, std::vector<LayerGroup> groups);

  [[nodiscard]] std::uint32_t model_layers() const { return static_cast<std::uint32_t>(spots_.size()); }
  [[nodiscard]] std::span<const LayerGroup> groups() const { return groups_; }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;

  // Where a layer of the model is: these layers of the shape of its group.
  struct Spot {
    std::uint32_t group = 0;
    std::uint32_t first_layer = 0;
    std::uint32_t layers = 1;
    friend bool operator==(const Spot&, const Spot&) = default;
  };
  // Requires: model_layer < model_layers().
  [[nodiscard]] const Spot& spot(std::uint32_t model_layer) const { return spots_[model_layer]; }

 private:
  LayerGroups(std::vector<LayerGroup> groups, std::vector<Spot> spots)
      : groups_(std::move(groups)), spots_(std::move(spots)) {}

  std::vector<LayerGroup> groups_;
  std::vector<Spot> spots_;  // by layer of the model
};

class LayoutGroups {
 public:
  // `layouts` has one for each group, in the same order.
  [[nodiscard]] static Result<LayoutGroups> make(LayerGroups groups, std::vector<BlockLayoutPtr> layouts);

  [[nodiscard]] const LayerGroups& groups() const { return groups_; }
  [[nodiscard]] std::span<const BlockLayoutPtr> layouts() const { return layouts_; }
  // Bytes of all blocks of all groups, without padding; memory that groups share counts once for each.
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  LayoutGroups(LayerGroups groups, std::vector<BlockLayoutPtr> layouts, std::uint64_t total_bytes)
      : groups_(std::move(groups)), layouts_(std::move(layouts)), total_bytes_(total_bytes) {}

  LayerGroups groups_;
  std::vector<BlockLayoutPtr> layouts_;
  std::uint64_t total_bytes_;
};

}  // namespace cairn
