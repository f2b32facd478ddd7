// TensorView: describes an engine's KV tensor by its axes, sizes and strides; places_of() turns the tensors of a group of
// layers into the places of a layout. The axes of common engines:
//
//   vLLM, K/V first      [2, blocks, page, heads, size]          kKv kBlock kToken kHead kElement
//   vLLM, block first    [blocks, 2, page, heads, size]          kBlock kKv kToken kHead kElement
//   HND                  the same sizes, other strides, or       kBlock kKv kHead kToken kElement
//   all layers in one    [blocks, layers, 2, page, heads, size]  kBlock kLayer kKv kToken kHead kElement
//   TensorRT-LLM pools   [blocks, layers, 2, heads, page, size]  kBlock kLayer kKv kHead kToken kElement
//   MLA                  [blocks, page, inner]                   kBlock kToken kElement
//   SGLang               [tokens, heads, size], K and V apart    kFlatToken kHead kElement
//   a state              [blocks, ...]                           kBlock kElement kElement ...
//
// Give the tensors in the order of the model's layers. If K and V are separate tensors, each counts as a layer, K before V:
// the shape has kv 1 and twice the layers; the rows have the same numbers, and a contiguous block the same bytes, as with
// kv 2.
//
// Errors: an axis that is missing or given twice, a stride that is negative or not of whole bytes, elements of a head that
// are not contiguous, tensors of different shapes. BlockLayout checks overlaps and bounds.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/kv_shape.h"

namespace cairn {

enum class TensorAxis : std::uint8_t {
  kBlock,
  kLayer,
  kKv,
  kToken,      // within a block
  kFlatToken,  // the tokens of all blocks in a row, instead of kBlock and kToken
  kHead,
  kElement,  // of a head; several such axes count as one if they are contiguous together
};
// "block", "layer", "kv", "token", "flat_token", "head", "element"
[[nodiscard]] std::string_view to_string(TensorAxis axis);

struct TensorDimension {
  TensorAxis axis = TensorAxis::kElement;
  std::uint64_t size = 0;
  std::int64_t stride = 0;  // in elements, as engines give it; ignored if the size is 1
};

struct TensorView {
  std::uint32_t region = 0;  // index into the regions of the layout
  std::uint64_t offset = 0;  // bytes from the region's base to the first element
  std::vector<TensorDimension> dimensions;
};

// Pairs the axes with the sizes and strides of the tensor, one of each.
[[nodiscard]] Result<TensorView> make_tensor_view(std::span<const TensorAxis> axes,
                                                  std::span<const std::uint64_t> sizes,
                                                  std::span<const std::int64_t> strides);

struct TensorPlaces {
  KvShape shape;
  std::uint32_t blocks = 0;
  std::vector<LayerPlace> layers;
};

struct TensorOptions {
  std::uint32_t element_bits = 0;
  std::uint32_t page_size = 0;  // tokens a block, for tensors with kFlatToken; known from the sizes of others
};

// `tensors` are all tensors of one group of layers.
[[nodiscard]] Result<TensorPlaces> places_of(std::span<const TensorView> tensors, const TensorOptions& options);

}  // namespace cairn
