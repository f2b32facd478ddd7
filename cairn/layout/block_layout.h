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

#include "cairn/base/check.h"
#include "cairn/base/result.h"
#include "cairn/layout/kv_shape.h"
#include "cairn/memory/region.h"

namespace cairn {

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
    CAIRN_CHECK(block < blocks_ && layer < shape_.layers && k_or_v < shape_.kv && token < shape_.page_size &&
                    head < shape_.heads,
                "block, layer, K/V, token and head of an address are within the layout");
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

}  // namespace cairn
