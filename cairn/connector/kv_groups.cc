#include "cairn/connector/kv_groups.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/region.h"

namespace cairn {
namespace {

// Reads the tensors of one group; the first error names the layer it is of.
class GroupReader {
 public:
  explicit GroupReader(const KvGroup& group) : group_(group) {}

  Result<BlockLayoutPtr> read() {
    CAIRN_TRY(check_counts());
    for (std::size_t i = 0; i < group_.tensors.size(); ++i) {
      CAIRN_TRY(read_tensor(i));
    }
    Result<TensorPlaces> places = places_of(views_, options());
    if (!places) {
      return refuse(places.error());
    }
    Result<BlockLayoutPtr> layout =
        BlockLayout::from_places(places->shape, places->blocks, std::move(places->layers), std::move(regions_));
    if (!layout) {
      return refuse(layout.error());
    }
    return layout;
  }

 private:
  [[nodiscard]] TensorOptions options() const { return {group_.element_bits, group_.page_size}; }
  [[nodiscard]] bool is_one_for_all() const { return group_.tensors.size() == 1 && group_.layers.size() > 1; }
  [[nodiscard]] bool is_k_and_v_apart() const { return group_.tensors.size() == 2 * group_.layers.size(); }

  [[nodiscard]] std::string name_of(std::size_t tensor) const {
    if (is_one_for_all()) {
      return "the tensor of all layers";
    }
    if (is_k_and_v_apart()) {
      return str_cat(tensor % 2 == 0 ? "K" : "V", " of layer '", group_.layers[tensor / 2], "'");
    }
    return str_cat("layer '", group_.layers[tensor], "'");
  }
  [[nodiscard]] Unexpected<Error> refuse(const Error& error) const {
    return fail(error.code, str_cat("group '", group_.name, "': ", error.message));
  }
  [[nodiscard]] Unexpected<Error> refuse(std::size_t tensor, ErrorCode code, std::string_view message) const {
    return fail(code, str_cat("group '", group_.name, "', ", name_of(tensor), ": ", message));
  }

  [[nodiscard]] Status check_counts() const {
    const std::size_t layers = group_.layers.size();
    const std::size_t tensors = group_.tensors.size();
    if (layers == 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("group '", group_.name, "' has no layers; name them"));
    }
    if (tensors != layers && tensors != 2 * layers && tensors != 1) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("group '", group_.name, "' has ", layers, " layers and ", tensors,
                          " tensors; give one for each layer, or two (K and V), or one for all"));
    }
    if (group_.page_size == 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("group '", group_.name, "' has a page size of 0"));
    }
    return {};
  }

  // Its region and view, and what can be said of it alone.
  Status read_tensor(std::size_t i) {
    const KvTensor& tensor = group_.tensors[i];
    Result<RegionPtr> region = external_region(
        {.base = tensor.base, .size = tensor.bytes, .kind = tensor.kind, .device = tensor.device, .keep_alive = {}});
    if (!region) {
      return refuse(i, region.error().code, region.error().message);
    }
    Result<TensorView> view = make_tensor_view(tensor.axes, tensor.sizes, tensor.strides);
    if (!view) {
      return refuse(i, view.error().code, view.error().message);
    }
    view->region = static_cast<std::uint32_t>(i);
    regions_.push_back(*std::move(region));
    views_.push_back(*std::move(view));
    // With those before it: its number in messages is its own, and a tensor that differs is named.
    Result<TensorPlaces> places = places_of(views_, options());
    if (!places) {
      return refuse(i, places.error().code, places.error().message);
    }
    CAIRN_TRY(check_shape(i, places->shape));
    return check_place(i, *std::move(places));
  }

  [[nodiscard]] Status check_shape(std::size_t i, const KvShape& shape) const {
    const std::size_t layers = is_one_for_all() ? group_.layers.size() : i + 1;
    if (shape.layers != layers) {
      return refuse(i, ErrorCode::kInvalidArgument,
                    is_one_for_all()
                        ? str_cat("it has ", shape.layers, " layers, and the group has ", layers)
                        : "it has an axis of layers; a group has one tensor for each layer or one for all");
    }
    if (is_k_and_v_apart() && shape.kv != 1) {
      return refuse(
          i, ErrorCode::kInvalidArgument,
          str_cat("it has K and V, and there are two tensors for each layer; give ", group_.layers.size(), " tensors"));
    }
    const bool has_tokens =
        std::ranges::find(group_.tensors[i].axes, TensorAxis::kToken) != group_.tensors[i].axes.end();
    if (has_tokens && shape.page_size != group_.page_size) {
      return refuse(
          i, ErrorCode::kInvalidArgument,
          str_cat("its blocks have ", shape.page_size, " tokens, and the group's page size is ", group_.page_size));
    }
    return {};
  }

  // Whether it ends within its memory.
  [[nodiscard]] Status check_place(std::size_t i, TensorPlaces places) const {
    std::vector<LayerPlace> own = std::move(places.layers);
    own.erase(own.begin(), is_one_for_all() ? own.begin() : own.begin() + static_cast<std::ptrdiff_t>(i));
    for (LayerPlace& place : own) {
      place.region = 0;
    }
    KvShape shape = places.shape;
    shape.layers = static_cast<std::uint32_t>(own.size());
    Result<BlockLayoutPtr> alone = BlockLayout::from_places(shape, places.blocks, std::move(own), {regions_[i]});
    if (!alone) {
      return refuse(i, alone.error().code, alone.error().message);
    }
    return {};
  }

  const KvGroup& group_;
  std::vector<RegionPtr> regions_;
  std::vector<TensorView> views_;
};

using LayerNumbers = std::unordered_map<std::string_view, std::uint32_t>;

Result<LayerNumbers> number_layers(std::span<const std::string> layers) {
  LayerNumbers numbers;
  for (const std::string& name : layers) {
    if (!numbers.emplace(name, static_cast<std::uint32_t>(numbers.size())).second) {
      return fail(ErrorCode::kInvalidArgument, str_cat("two layers of the model are called '", name, "'"));
    }
  }
  return numbers;
}

Result<LayerGroup> number_group(const KvGroup& group, const KvShape& shape, const LayerNumbers& numbers) {
  LayerGroup numbered{.name = group.name, .shape = shape, .layers = {}};
  for (const std::string& name : group.layers) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) {
      return fail(ErrorCode::kNotFound, str_cat("group '", group.name, "', layer '", name,
                                                "': the model has no such layer; name it in the order of its layers"));
    }
    numbered.layers.push_back(found->second);
  }
  return numbered;
}

// A layer that is in no group, or in two, by its name; LayerGroups would say its number.
Status check_membership(std::span<const KvGroup> groups, std::span<const std::string> layers) {
  std::unordered_map<std::string_view, std::string_view> groups_of;
  for (const KvGroup& group : groups) {
    for (const std::string& name : group.layers) {
      const auto [found, is_new] = groups_of.emplace(name, group.name);
      if (!is_new) {
        return fail(ErrorCode::kInvalidArgument, str_cat("layer '", name, "' is in group '", found->second,
                                                         "' and again in group '", group.name, "'"));
      }
    }
  }
  for (const std::string& name : layers) {
    if (!groups_of.contains(name)) {
      return fail(ErrorCode::kInvalidArgument, str_cat("layer '", name, "' of the model is in no group"));
    }
  }
  return {};
}

}  // namespace

Result<LayoutGroups> make_kv_groups(std::span<const KvGroup> groups, std::span<const std::string> layers) {
  if (groups.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no tensor groups given; pass a group for every layer");
  }
  CAIRN_TRY_ASSIGN(const LayerNumbers numbers, number_layers(layers));
  std::vector<BlockLayoutPtr> layouts;
  std::vector<LayerGroup> numbered;
  for (const KvGroup& group : groups) {
    CAIRN_TRY_ASSIGN(BlockLayoutPtr layout, GroupReader(group).read());
    CAIRN_TRY_ASSIGN(LayerGroup with_numbers, number_group(group, layout->shape(), numbers));
    if (!layouts.empty() && layout->blocks() != layouts.front()->blocks()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("group '", group.name, "' has ", layout->blocks(), " blocks and group '", groups.front().name,
                          "' has ", layouts.front()->blocks(), "; blocks have the same numbers in all groups"));
    }
    layouts.push_back(std::move(layout));
    numbered.push_back(std::move(with_numbers));
  }
  CAIRN_TRY(check_membership(groups, layers));
  CAIRN_TRY_ASSIGN(LayerGroups made, LayerGroups::make(static_cast<std::uint32_t>(layers.size()), std::move(numbered)));
  return LayoutGroups::make(std::move(made), std::move(layouts));
}

}  // namespace cairn
