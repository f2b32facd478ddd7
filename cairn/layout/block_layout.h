// BlockLayout: computes the address of each row (block, layer, K/V, token, head) of the blocks in its regions.
//
// A layout is made from a shape and an arrangement, or from the strides of an engine's tensors. Overflow, overlap and
// bounds are checked when it is made; address() checks only the indices.
//
// Thread safety: immutable; safe from any thread.
// Ownership: shared; holds its regions.
// Errors: the make functions refuse an invalid shape, regions that are too small, not aligned, of two kinds or on two
// GPUs, and rows that share a byte. The message says which dimension and which numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

// The dimensions of a block of one group of layers: layers x K/V x tokens x heads x elements of a head.
//
// A row is the elements of one head of one token. It is contiguous in every arrangement; layouts place rows, transfers copy
// rows and checksums are made by rows. Rows are numbered in the same order in every arrangement: by layer, then K/V, then
// token, then head.
struct KvShape {
  std::uint32_t layers = 0;
  std::uint32_t kv = 2;            // 2: keys and values; 1: one tensor for both (MLA, a state)
  std::uint32_t page_size = 0;     // tokens a block; 1 for a state
  std::uint32_t heads = 0;         // of K/V; 1 if there is only an inner dimension
  std::uint32_t head_size = 0;     // elements of a head, or the inner dimension
  std::uint32_t element_bits = 0;  // 4 to 64

  // Every number must be at least 1; at most 65,536 layers; rows of whole bytes; at most 2^32 words of 8 bytes a block when
  // each row is padded to words (at most 32 GiB, so that no product below overflows).
  [[nodiscard]] Status validate() const;

  [[nodiscard]] std::uint64_t row_bytes() const { return std::uint64_t{head_size} * element_bits / 8; }
  [[nodiscard]] std::uint64_t rows() const { return std::uint64_t{layers} * kv * page_size * heads; }
  [[nodiscard]] std::uint64_t block_bytes() const { return rows() * row_bytes(); }
  [[nodiscard]] std::uint64_t row(std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token,
                                  std::uint32_t head) const {
    return ((std::uint64_t{layer} * kv + k_or_v) * page_size + token) * heads + head;
  }

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// Dimensions from the outermost to the innermost. NHD: the heads of a token are adjacent; HND: the tokens of a head are.
enum class Arrangement : std::uint8_t {
  kContiguousNhd,   // [block][layer][K/V][token][head], one region
  kContiguousHnd,   // [block][layer][K/V][head][token], one region
  kLayersKvNhd,     // one region for each layer: [K/V][block][token][head]
  kLayersKvHnd,     // one region for each layer: [K/V][block][head][token]
  kLayersBlockNhd,  // one region for each layer: [block][K/V][token][head]
  kLayersBlockHnd,  // one region for each layer: [block][K/V][head][token]
};
inline constexpr Arrangement kAllArrangements[] = {Arrangement::kContiguousNhd,  Arrangement::kContiguousHnd,
                                                   Arrangement::kLayersKvNhd,    Arrangement::kLayersKvHnd,
                                                   Arrangement::kLayersBlockNhd, Arrangement::kLayersBlockHnd};
// "contiguous-nhd", "layers-kv-hnd" and so on
[[nodiscard]] std::string_view to_string(Arrangement arrangement);

// Where the rows of one layer lie: offset + block * block_step + kv * kv_step + token * token_step + head * head_step.
struct LayerPlace {
  std::uint32_t region = 0;  // index into the layout's regions
  std::uint64_t offset = 0;  // of block 0's first row
  std::uint64_t block_step = 0;
  std::uint64_t kv_step = 0;
  std::uint64_t token_step = 0;
  std::uint64_t head_step = 0;

  friend bool operator==(const LayerPlace&, const LayerPlace&) = default;
};

class BlockLayout;
using BlockLayoutPtr = std::shared_ptr<const BlockLayout>;

class BlockLayout {
 public:
  struct Options {
    KvShape shape;
    Arrangement arrangement = Arrangement::kContiguousNhd;
    std::uint32_t blocks = 0;
    std::uint64_t alignment = 1;  // of each block (and of each layer, if layers have regions); a power of two
  };
  // The bytes that each region must have: one number, or one for each layer.
  [[nodiscard]] static Result<std::vector<std::uint64_t>> region_sizes(const Options& options);
  [[nodiscard]] static Result<BlockLayoutPtr> make(const Options& options, std::vector<RegionPtr> regions);
  // The tensors of an engine: one place for each layer.
  [[nodiscard]] static Result<BlockLayoutPtr> from_places(const KvShape& shape, std::uint32_t blocks,
                                                          std::vector<LayerPlace> layers,
                                                          std::vector<RegionPtr> regions);

  // Blocks in the memory of other processes (elsewhere_region()): a layout to plan with, whose bytes are never touched here.
  [[nodiscard]] static Result<BlockLayoutPtr> elsewhere(const KvShape& shape, std::uint32_t blocks, MemoryKind kind);

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<const LayerPlace> layers() const { return layers_; }
  [[nodiscard]] std::span<const RegionPtr> regions() const { return regions_; }
  // All regions of a layout are of one kind, and on one GPU.
  [[nodiscard]] MemoryKind kind() const { return regions_.front()->kind(); }
  [[nodiscard]] int device() const { return regions_.front()->device(); }

  struct Address {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
  };
  // Aborts if an index is out of range, because the address would be that of another row.
  [[nodiscard]] Address address(std::uint32_t block, std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token,
                                std::uint32_t head) const {
    if (block >= blocks_ || layer >= shape_.layers || k_or_v >= shape_.kv || token >= shape_.page_size ||
        head >= shape_.heads) [[unlikely]] {
      internal::abort_because("block, layer, K/V, token and head of an address are within the layout");
    }
    const LayerPlace& at = layers_[layer];
    return {at.region,
            at.offset + block * at.block_step + k_or_v * at.kv_step + token * at.token_step + head * at.head_step};
  }

 private:
  BlockLayout(const KvShape& shape, std::uint32_t blocks, std::vector<LayerPlace> layers,
              std::vector<RegionPtr> regions)
      : shape_(shape), blocks_(blocks), layers_(std::move(layers)), regions_(std::move(regions)) {}

  KvShape shape_;
  std::uint32_t blocks_;
  std::vector<LayerPlace> layers_;
  std::vector<RegionPtr> regions_;
};

// --- the tensors of an engine ---
//
// A TensorView describes an engine's KV tensor by its axes, sizes and strides; places_of() turns the tensors of a group of
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
// Errors: an axis that is missing or given twice, a stride that is negative or not of whole bytes, elements of a head that
// are not contiguous, tensors of different shapes. BlockLayout checks overlaps and bounds.
[[nodiscard]] Result<TensorPlaces> places_of(std::span<const TensorView> tensors, const TensorOptions& options);

}  // namespace cairn
