#include "cairn/layout/layer_groups.h"

#include <algorithm>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

constexpr std::uint32_t kMostModelLayers = 1U << 16U;

Status check_group(std::span<const LayerGroup> before, const LayerGroup& group) {
  if (group.name.empty()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("group ", before.size(), " has no name"));
  }
  if (std::ranges::find(before, group.name, &LayerGroup::name) != before.end()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("two groups are called '", group.name, "'"));
  }
  if (Status valid = group.shape.validate(); !valid) {
    return fail(valid.error().code, str_cat("group '", group.name, "': ", valid.error().message));
  }
  if (group.layers.empty() || group.shape.layers % group.layers.size() != 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("group '", group.name, "' has ", group.layers.size(), " layers and a shape of ",
                        group.shape.layers, "; a shape has one for each, or equally many"));
  }
  return {};
}

}  // namespace

Result<LayerGroups> LayerGroups::make(std::uint32_t model_layers, std::vector<LayerGroup> groups) {
  if (model_layers == 0 || model_layers > kMostModelLayers) {
    return fail(ErrorCode::kOutOfRange, str_cat("a model of ", model_layers, " layers; give 1 to ", kMostModelLayers));
  }
  std::vector<std::optional<Spot>> found(model_layers);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const LayerGroup& group = groups[g];
    CAIRN_TRY(check_group(std::span(groups).first(g), group));
    const std::uint32_t each = group.shape.layers / static_cast<std::uint32_t>(group.layers.size());
    for (std::uint32_t i = 0; i < group.layers.size(); ++i) {
      const std::uint32_t layer = group.layers[i];
      if (layer >= model_layers) {
        return fail(ErrorCode::kOutOfRange,
                    str_cat("group '", group.name, "' has layer ", layer, "; the model has ", model_layers));
      }
      if (found[layer]) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("layer ", layer, " is in group '", groups[found[layer]->group].name, "' and again in '",
                            group.name, "'"));
      }
      found[layer] = Spot{g, i * each, each};
    }
  }
  std::vector<Spot> spots;
  for (std::uint32_t layer = 0; layer < model_layers; ++layer) {
    if (!found[layer]) {
      return fail(ErrorCode::kInvalidArgument, str_cat("layer ", layer, " of ", model_layers, " is in no group"));
    }
    spots.push_back(*found[layer]);
  }
  return LayerGroups(std::move(groups), std::move(spots));
}

std::optional<std::uint32_t> LayerGroups::find(std::string_view name) const {
  const auto found = std::ranges::find(groups_, name, &LayerGroup::name);
  if (found == groups_.end()) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(found - groups_.begin());
}

Result<LayoutGroups> LayoutGroups::make(LayerGroups groups, std::vector<BlockLayoutPtr> layouts) {
  if (layouts.size() != groups.groups().size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(groups.groups().size(), " groups and ", layouts.size(), " layouts; give one for each group"));
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const LayerGroup& group = groups.groups()[i];
    if (layouts[i] == nullptr) {
      return fail(ErrorCode::kInvalidArgument, str_cat("the layout of group '", group.name, "' is null"));
    }
    if (layouts[i]->shape() != group.shape) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("the layout of group '", group.name, "' has blocks of ", layouts[i]->shape().block_bytes(),
                          " bytes and another shape than the group, whose blocks have ", group.shape.block_bytes()));
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(std::uint64_t{layouts[i]->blocks()}, group.shape.block_bytes(), &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return fail(ErrorCode::kOutOfRange, "the groups take more than 2^64 bytes");
    }
  }
  return LayoutGroups(std::move(groups), std::move(layouts), total);
}

}  // namespace cairn
