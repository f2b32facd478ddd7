// LayerGroups: a model whose layers differ (sliding windows, MLA, states of linear attention), as groups of equal layers,
// each with a shape and so with block bytes of its own. LayoutGroups: the same with memory.
//
// Does:     says which group a layer of the model is in, and where in it; what a block of each group takes, and all
//           together. Blocks of groups are numbered apart: block 5 of one group has nothing to do with block 5 of another.
// Owner:    values; LayoutGroups hold their layouts.
// Threads:  immutable after make().
// Fails:    when made: a layer in no group or in two, groups without a name or of one name, a shape that does not fit
//           the number of layers, a layout of another shape. Groups may lie in the same memory: engines overlay them, and
//           it is theirs to give a block to one group at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/kv_shape.h"

namespace cairn {

struct LayerGroup {
  std::string name;
  // For each layer of the group one of the shape's, or equally many: 2 where K and V are tensors of their own
  // (layout/tensor_view.h).
  KvShape shape;
  std::vector<std::uint32_t> layers;  // of the model, in the order in which the shape has them
};

class LayerGroups {
 public:
  [[nodiscard]] static Result<LayerGroups> make(std::uint32_t model_layers, std::vector<LayerGroup> groups);

  [[nodiscard]] std::uint32_t model_layers() const { return static_cast<std::uint32_t>(spots_.size()); }
  [[nodiscard]] std::span<const LayerGroup> groups() const { return groups_; }
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;

  // Where a layer of the model is: layers of its group's shape.
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
  // A layout for each group, in their order.
  [[nodiscard]] static Result<LayoutGroups> make(LayerGroups groups, std::vector<BlockLayoutPtr> layouts);

  [[nodiscard]] const LayerGroups& groups() const { return groups_; }
  [[nodiscard]] std::span<const BlockLayoutPtr> layouts() const { return layouts_; }
  // Of all blocks of all groups, without what alignment adds; memory that groups share counts for each.
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  LayoutGroups(LayerGroups groups, std::vector<BlockLayoutPtr> layouts, std::uint64_t total_bytes)
      : groups_(std::move(groups)), layouts_(std::move(layouts)), total_bytes_(total_bytes) {}

  LayerGroups groups_;
  std::vector<BlockLayoutPtr> layouts_;
  std::uint64_t total_bytes_;
};

}  // namespace cairn
