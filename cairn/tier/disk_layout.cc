#include "cairn/tier/disk_layout.h"

#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/file_region.h"

namespace cairn {

Result<RegionPtr> disk_region(const DiskFile& file, bool direct) {
  return file_region({.path = file.path(), .size = file.file_bytes(), .opening = FileOpening::kOpen, .direct = direct});
}

Result<BlockLayoutPtr> disk_layout(const DiskFile& file, const KvShape& shape, RegionPtr region) {
  if (shape.block_bytes() != file.geometry().block_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("blocks of the shape have ", shape.block_bytes(), " bytes, those of ", file.path(), " have ",
                        file.geometry().block_bytes));
  }
  LayerPlace place{.offset = file.data_offset(), .block_step = file.block_step()};
  place.head_step = shape.row_bytes();
  place.token_step = place.head_step * shape.heads;
  place.kv_step = place.token_step * shape.page_size;
  std::vector<LayerPlace> layers;
  layers.reserve(shape.layers);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    layers.push_back(place);
    place.offset += place.kv_step * shape.kv;
  }
  return BlockLayout::from_places(shape, file.geometry().blocks, std::move(layers), {std::move(region)});
}

}  // namespace cairn
