#include "cairn/layout/block_layout.h"

#include <bit>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/row_overlap.h"
#include "cairn/memory/elsewhere_region.h"

namespace cairn {
namespace {

// Offsets stay below this, so that sums and differences of a few of them fit into signed 64 bits.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60U;

bool is_contiguous(Arrangement arrangement) {
  return arrangement == Arrangement::kContiguousNhd || arrangement == Arrangement::kContiguousHnd;
}

bool is_hnd(Arrangement arrangement) {
  return arrangement == Arrangement::kContiguousHnd || arrangement == Arrangement::kLayersKvHnd ||
         arrangement == Arrangement::kLayersBlockHnd;
}

// The steps of an arrangement, and the bytes of each region.
struct Arranged {
  LayerPlace first;              // layer 0
  std::uint64_t layer_step = 0;  // within the one region; 0 if each layer has its own
  std::uint64_t region_bytes = 0;
};

std::optional<std::uint64_t> rounded_up(std::uint64_t bytes, std::uint64_t alignment) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(bytes, alignment - 1, &sum)) {
    return std::nullopt;
  }
  return sum & ~(alignment - 1);
}

Result<Arranged> arrange(const BlockLayout::Options& options) {
  const KvShape& shape = options.shape;
  CAIRN_TRY(shape.validate());
  if (options.blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "a layout of 0 blocks; give at least 1");
  }
  if (!std::has_single_bit(options.alignment)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("an alignment of ", options.alignment, " bytes; give a power of two"));
  }
  const std::uint64_t row = shape.row_bytes();
  const std::uint64_t plane = row * shape.page_size * shape.heads;  // the keys, or values, of one block in one layer
  const std::uint64_t layer = plane * shape.kv;
  Arranged arranged;
  LayerPlace& first = arranged.first;
  first.token_step = is_hnd(options.arrangement) ? row : row * shape.heads;
  first.head_step = is_hnd(options.arrangement) ? row * shape.page_size : row;
  first.kv_step = plane;
  const bool kv_first =
      options.arrangement == Arrangement::kLayersKvNhd || options.arrangement == Arrangement::kLayersKvHnd;
  std::uint64_t unit = layer;  // what is aligned
  std::uint64_t units = options.blocks;
  if (is_contiguous(options.arrangement)) {
    arranged.layer_step = layer;
    unit = layer * shape.layers;
  } else if (kv_first) {
    unit = plane;
    units *= shape.kv;
  }
  const std::optional<std::uint64_t> step = rounded_up(unit, options.alignment);
  if (!step || *step > kMostBytes / units) {
    return fail(ErrorCode::kOutOfRange,
                str_cat(options.blocks, " blocks of ", unit, " bytes aligned to ", options.alignment,
                        " take more than 2^60 bytes of a region; take fewer blocks or a smaller alignment"));
  }
  first.block_step = *step;
  if (kv_first) {
    first.kv_step = *step * options.blocks;
  }
  arranged.region_bytes = *step * units;
  return arranged;
}

Status check_regions(std::span<const RegionPtr> regions) {
  if (regions.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a layout without regions; give the regions of its blocks");
  }
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] == nullptr) {
      return fail(ErrorCode::kInvalidArgument, str_cat("region ", i, " is null"));
    }
    const Region& first = *regions.front();
    const Region& region = *regions[i];
    if (region.size() > kMostBytes ||
        region.size() > ~std::uint64_t{0} - reinterpret_cast<std::uintptr_t>(region.base())) {
      return fail(ErrorCode::kOutOfRange, str_cat("region ", i, " of ", region.size(),
                                                  " bytes is above 2^60, or runs beyond the end of addresses"));
    }
    if (region.kind() != first.kind()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("region ", i, " is of kind ", to_string(region.kind()), " and region 0 of kind ",
                          to_string(first.kind()), "; a layout lies in regions of one kind"));
    }
    if (region.device() != first.device()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("region ", i, " is of device ", region.device(), " and region 0 of device ", first.device(),
                          "; a layout lies on one device"));
    }
  }
  return {};
}

// Checks that every row of the layer is within its region, without overflow.
Status check_bounds(const KvShape& shape, std::uint32_t blocks, std::uint32_t layer, const LayerPlace& place,
                    std::span<const RegionPtr> regions) {
  if (place.region >= regions.size()) {
    return fail(ErrorCode::kOutOfRange,
                str_cat("layer ", layer, " lies in region ", place.region, "; there are ", regions.size()));
  }
  const struct {
    std::string_view name;
    std::uint32_t count;
    std::uint64_t step;
  } dimensions[] = {{"block", blocks, place.block_step},
                    {"K/V", shape.kv, place.kv_step},
                    {"token", shape.page_size, place.token_step},
                    {"head", shape.heads, place.head_step}};
  const std::uint64_t size = regions[place.region]->size();
  std::uint64_t end = shape.row_bytes();
  bool fits = !__builtin_add_overflow(end, place.offset, &end);
  for (const auto& dimension : dimensions) {
    if (dimension.count == 1) {
      continue;
    }
    if (dimension.step < shape.row_bytes()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("layer ", layer, ": a ", dimension.name, " step of ", dimension.step,
                          " bytes is less than a row's ", shape.row_bytes(), ": rows would share bytes"));
    }
    std::uint64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(dimension.step, std::uint64_t{dimension.count} - 1, &reach) &&
           !__builtin_add_overflow(end, reach, &end);
  }
  if (!fits || end > size) {
    std::string steps;
    for (const auto& dimension : dimensions) {
      steps += str_cat(", ", dimension.count, " x ", dimension.name, " step ", dimension.step);
    }
    return fail(ErrorCode::kOutOfRange,
                str_cat("layer ", layer, " ends ", fits ? str_cat("at byte ", end) : "beyond 2^64", " of region ",
                        place.region, ", which has ", size, " bytes (offset ", place.offset, steps, ", rows of ",
                        shape.row_bytes(), " bytes)"));
  }
  return {};
}

// More than any model has. Layouts allocate for each layer, so a wrong number must not ask for all memory.
constexpr std::uint32_t kMostLayers = 1U << 16U;
constexpr std::uint64_t kMostWords = std::uint64_t{1} << 32U;

}  // namespace

std::string_view to_string(Arrangement arrangement) {
  constexpr std::string_view kNames[] = {"contiguous-nhd", "contiguous-hnd",   "layers-kv-nhd",
                                         "layers-kv-hnd",  "layers-block-nhd", "layers-block-hnd"};
  return kNames[static_cast<std::size_t>(arrangement)];
}

Result<std::vector<std::uint64_t>> BlockLayout::region_sizes(const Options& options) {
  CAIRN_TRY_ASSIGN(Arranged arranged, arrange(options));
  const std::uint32_t regions = is_contiguous(options.arrangement) ? 1 : options.shape.layers;
  return std::vector<std::uint64_t>(regions, arranged.region_bytes);
}

Result<BlockLayoutPtr> BlockLayout::make(const Options& options, std::vector<RegionPtr> regions) {
  CAIRN_TRY_ASSIGN(Arranged arranged, arrange(options));
  const bool one_region = is_contiguous(options.arrangement);
  const std::size_t expected = one_region ? 1 : options.shape.layers;
  if (regions.size() != expected) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(to_string(options.arrangement), " of ", options.shape.layers, " layers takes ", expected,
                        " regions; ", regions.size(), " were given"));
  }
  CAIRN_TRY(check_regions(regions));
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (regions[i]->size() < arranged.region_bytes) {
      return fail(ErrorCode::kOutOfRange,
                  str_cat("region ", i, " has ", regions[i]->size(), " bytes; ", options.blocks, " blocks as ",
                          to_string(options.arrangement), " take ", arranged.region_bytes));
    }
    // Offsets in a file need no base; the base of memory must be aligned.
    if (reinterpret_cast<std::uintptr_t>(regions[i]->base()) % options.alignment != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("region ", i, " does not begin at a multiple of ", options.alignment,
                          " bytes, the alignment of its blocks; allocate it with that alignment"));
    }
  }
  std::vector<LayerPlace> layers(options.shape.layers, arranged.first);
  for (std::uint32_t layer = 0; layer < options.shape.layers; ++layer) {
    layers[layer].region = one_region ? 0 : layer;
    layers[layer].offset = layer * arranged.layer_step;
  }
  return from_places(options.shape, options.blocks, std::move(layers), std::move(regions));
}

Result<BlockLayoutPtr> BlockLayout::elsewhere(const KvShape& shape, std::uint32_t blocks, MemoryKind kind) {
  const Options options{.shape = shape, .arrangement = Arrangement::kContiguousNhd, .blocks = blocks};
  CAIRN_TRY_ASSIGN(std::vector<std::uint64_t> sizes, region_sizes(options));
  CAIRN_TRY_ASSIGN(RegionPtr region, elsewhere_region(kind, sizes.front()));
  return make(options, {std::move(region)});
}

Result<BlockLayoutPtr> BlockLayout::from_places(const KvShape& shape, std::uint32_t blocks,
                                                std::vector<LayerPlace> layers, std::vector<RegionPtr> regions) {
  CAIRN_TRY(shape.validate());
  if (blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "a layout of 0 blocks; give at least 1");
  }
  if (layers.size() != shape.layers) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a shape of ", shape.layers, " layers and the places of ",
                                                     layers.size(), "; give one for each layer"));
  }
  CAIRN_TRY(check_regions(regions));
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    CAIRN_TRY(check_bounds(shape, blocks, layer, layers[layer], regions));
  }
  const internal::SharedByte shared =
      internal::find_shared_byte(internal::row_sets(shape, blocks, layers, regions), shape.row_bytes());
  if (shared.sharing == internal::Sharing::kFound) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("two rows of ", shape.row_bytes(), " bytes overlap: ", shared.rows, "; check the steps"));
  }
  if (shared.sharing == internal::Sharing::kUnknown) {
    return fail(ErrorCode::kInvalidArgument,
                "the steps of the layers are too irregular to tell that no two rows overlap; give layers steps that "
                "nest in each other");
  }
  return BlockLayoutPtr(new BlockLayout(shape, blocks, std::move(layers), std::move(regions)));
}

Status KvShape::validate() const {
  const struct {
    std::string_view name;
    std::uint32_t value;
  } numbers[] = {{"layers", layers}, {"kv", kv}, {"page_size", page_size}, {"heads", heads}, {"head_size", head_size}};
  for (const auto& number : numbers) {
    if (number.value == 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("a block of ", number.name, " 0 has no bytes; give at least 1"));
    }
  }
  if (layers > kMostLayers) {
    return fail(ErrorCode::kOutOfRange, str_cat("a shape of ", layers, " layers; it can have at most ", kMostLayers));
  }
  if (kv > 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("kv is ", kv, "; give 2 for keys and values, 1 for one tensor (MLA)"));
  }
  if (element_bits < 4 || element_bits > 64) {
    return fail(ErrorCode::kInvalidArgument, str_cat("elements of ", element_bits, " bits; give 4 to 64"));
  }
  if (std::uint64_t{head_size} * element_bits % 8 != 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a head of ", head_size, " elements of ", element_bits,
                                                     " bits does not end with a byte; pad head_size"));
  }
  // Positions of words are counted in 32 bits by the checksum. The limit also keeps all the products above in range.
  std::uint64_t words = (row_bytes() + 7) / 8;
  for (const std::uint64_t count : {layers, kv, page_size, heads}) {
    if (words > kMostWords / count) {
      return fail(ErrorCode::kOutOfRange,
                  str_cat("a block of ", layers, " layers x ", kv, " x ", page_size, " tokens x ", heads, " heads x ",
                          row_bytes(), " bytes has more than 2^32 words of 8 bytes; take fewer tokens a block"));
    }
    words *= count;
  }
  return {};
}

}  // namespace cairn
