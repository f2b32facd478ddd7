// BlockLayout: where each row of each block lies in regions.
//
// Does:     from a shape and an arrangement, or from an engine's own tensors by their strides, to the address of
//           (block, layer, K/V, token, head): arithmetic, that was checked for overflow, overlap and bounds when the
//           layout was built; only the indices are checked when it is used.
// Owner:    shared and immutable; holds its regions alive.
// Threads:  any.
// Fails:    when built: a shape that is none, regions that are too small, not aligned, of two kinds or two GPUs, rows
//           that share a byte. Says which dimension and which numbers.
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

// From the outside in; NHD has the heads of a token beside each other, HND the tokens of a head.
enum class Arrangement : std::uint8_t {
  kContiguousNhd,   // [block][layer][K/V][token][head], one region
  kContiguousHnd,   // [block][layer][K/V][head][token], one region
  kLayersKvNhd,     // a region a layer: [K/V][block][token][head]
  kLayersKvHnd,     // a region a layer: [K/V][block][head][token]
  kLayersBlockNhd,  // a region a layer: [block][K/V][token][head]
  kLayersBlockHnd,  // a region a layer: [block][K/V][head][token]
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
    std::uint64_t alignment =
        1;  // of every block's beginning (and every layer's, where they are apart); a power of two
  };
  // Bytes that each region must have: one number, or one for each layer.
  [[nodiscard]] static Result<std::vector<std::uint64_t>> region_sizes(const Options& options);
  [[nodiscard]] static Result<BlockLayoutPtr> make(const Options& options, std::vector<RegionPtr> regions);
  // An engine's tensors, as it describes them: one place a layer.
  [[nodiscard]] static Result<BlockLayoutPtr> from_places(const KvShape& shape, std::uint32_t blocks,
                                                          std::vector<LayerPlace> layers,
                                                          std::vector<RegionPtr> regions);

  // Blocks that other processes hold, in memory of this kind: for those who keep account of them.
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
  // Aborts if the layout has no such block, layer, K or V, token or head: the address would be another row's.
  [[nodiscard]] Address address(std::uint32_t block, std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token,
                                std::uint32_t head) const {
    CAIRN_CHECK(block < blocks_ && layer < shape_.layers && k_or_v < shape_.kv && token < shape_.page_size &&
                    head < shape_.heads,
                "an address is asked for of a block, layer, K or V, token and head that the layout has");
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
