#include "cairn/rank/rank_memory.h"

#include <string>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/manager/tier_memory.h"
#include "cairn/tier/disk_layout.h"
#include "cairn/tier/disk_opening.h"
#include "cairn/transfer/tensor_parallel.h"

namespace cairn {

namespace {

constexpr std::uint32_t kPageOfState = 1;

// Empty if the shapes are the same. K and V may lie apart: rows and bytes are the same.
std::string difference(const KvShape& has, const KvShape& share) {
  KvShape joined = has;
  if (share.kv == 2 && has.kv == 1 && has.layers == 2 * share.layers) {
    joined.kv = 2;
    joined.layers = share.layers;
  }
  std::string all;
  const auto compare = [&all](const char* name, std::uint32_t one, std::uint32_t other) {
    if (one != other) {
      all += str_cat(all.empty() ? "" : ", ", one, " ", name, " where it is ", other);
    }
  };
  compare("layers", joined.layers, share.layers);
  compare("of K and V", joined.kv, share.kv);
  compare("tokens a block", joined.page_size, share.page_size);
  compare("heads", joined.heads, share.heads);
  compare("elements a head", joined.head_size, share.head_size);
  compare("bits an element", joined.element_bits, share.element_bits);
  return all;
}

Status check_blocks(const ManagerConfig& config, std::span<const BlockLayoutPtr> layouts) {
  const std::uint32_t blocks = layouts.front()->blocks();
  for (const BlockLayoutPtr& layout : layouts) {
    if (layout->blocks() != blocks) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("groups of ", blocks, " and of ", layout->blocks(),
                          " device blocks; every block has a part in every group, so give all groups the same number"));
    }
  }
  if (config.device.blocks != 0 && config.device.blocks != blocks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the engine has ", blocks, " device blocks here, the leader counts ", config.device.blocks,
                        "; give every rank the leader's number"));
  }
  return {};
}

Status check_device(const ManagerConfig& config, std::span<const BlockLayoutPtr> layouts, std::uint32_t rank,
                    std::uint32_t ranks) {
  if (layouts.size() > 1) {
    for (const BlockLayoutPtr& layout : layouts) {
      if (const std::uint32_t page = layout->shape().page_size; page != config.block_size && page != kPageOfState) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("a group has blocks of ", page, " tokens, the leader of ", config.block_size));
      }
    }
    return check_blocks(config, layouts);
  }
  CAIRN_TRY_ASSIGN(const HeadShare heads, share_of(rank, ranks, config.model.heads));
  KvShape share = config.shape();
  share.heads = heads.heads;
  if (const std::string differs = difference(layouts.front()->shape(), share); !differs.empty()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the device memory of rank ", rank, " of ", ranks,
                                                     " is not its share of the leader's model: ", differs));
  }
  return check_blocks(config, layouts);
}

// A file that fits is kept even with kFresh.
Result<OpenedDisk> open_file(const std::string& path, const DiskGeometry& geometry, DiskOpening opening) {
  Result<OpenedDisk> opened = open_disk(path, geometry, opening == DiskOpening::kFresh ? DiskOpening::kReuse : opening);
  const bool replace = !opened && opening == DiskOpening::kFresh;
  return replace ? open_disk(path, geometry, opening) : std::move(opened);
}

}  // namespace

Result<RankMemory> RankMemory::make(const ManagerConfig& config, const LayoutGroups& device, std::uint32_t rank,
                                    std::uint32_t ranks) {
  if (Status fits = check_device(config, device.layouts(), rank, ranks); !fits) {
    return at_key("device", fits.error());
  }
  RankMemory memory;
  memory.layouts_[index_of(CacheLevel::kG1)].assign(device.layouts().begin(), device.layouts().end());
  if (config.host.blocks != 0) {
    if (Status made = memory.add_host(config); !made) {
      return at_key("host", made.error());
    }
  }
  if (config.disk.blocks != 0) {
    if (Status made = memory.add_disk(config, rank, ranks); !made) {
      return at_key("disk", made.error());
    }
  }
  return memory;
}

Status RankMemory::add_host(const ManagerConfig& config) {
  for (const BlockLayoutPtr& device : layouts(CacheLevel::kG1)) {
    const BlockLayout::Options options{.shape = device->shape(),
                                       .arrangement = Arrangement::kContiguousNhd,
                                       .blocks = config.host.blocks,
                                       .alignment = host_alignment(config.disk.blocks != 0)};
    CAIRN_TRY_ASSIGN(const std::vector<std::uint64_t> sizes, BlockLayout::region_sizes(options));
    const bool has_gpu = device->kind() == MemoryKind::kDevice;
    CAIRN_TRY_ASSIGN(RegionPtr region,
                     host_region(config.host, sizes.front(), has_gpu, has_gpu ? device->device() : config.device.gpu));
    CAIRN_TRY_ASSIGN(BlockLayoutPtr layout, BlockLayout::make(options, {std::move(region)}));
    layouts_[index_of(CacheLevel::kG2)].push_back(std::move(layout));
  }
  return {};
}

Status RankMemory::add_disk(const ManagerConfig& config, std::uint32_t rank, std::uint32_t ranks) {
  const std::span<const BlockLayoutPtr> device = layouts(CacheLevel::kG1);
  for (std::size_t group = 0; group < device.size(); ++group) {
    const KvShape& shape = device[group]->shape();
    DiskGeometry geometry{.space = config.space(),
                          .block_bytes = shape.block_bytes(),
                          .row_bytes = shape.row_bytes(),
                          .blocks = config.disk.blocks};
    geometry.space.shard = str_cat("r", rank, "of", ranks);
    // The leader's entries say which weights the bytes belong to; new weights at run time change nothing here.
    geometry.space.weights_generation = 0;
    if (device.size() > 1) {
      // The model does not say the shape of a group.
      geometry.space.shard += str_cat(".g", group);
      geometry.space.layout += str_cat(", ", shape.layers, "x", shape.kv, "x", shape.heads, "x", shape.head_size);
    }
    CAIRN_TRY_ASSIGN(OpenedDisk opened,
                     open_file(str_cat(config.disk.path, ".", geometry.space.shard), geometry, config.disk.opening));
    if (!opened.damage.empty()) {
      damage_ += str_cat(damage_.empty() ? "" : "; ", opened.damage);
    }
    CAIRN_TRY_ASSIGN(RegionPtr region, disk_region(opened.file, config.disk.direct));
    CAIRN_TRY_ASSIGN(BlockLayoutPtr layout, disk_layout(opened.file, shape, std::move(region)));
    layouts_[index_of(CacheLevel::kG3)].push_back(std::move(layout));
    files_.push_back(std::move(opened.file));
  }
  return {};
}

void RankMemory::sync() const {
  for (const DiskFile& file : files_) {
    (void)file.sync();  // lost blocks are found by their checksums
  }
}

std::uint64_t RankMemory::block_bytes() const {
  std::uint64_t bytes = 0;
  for (const BlockLayoutPtr& layout : layouts(CacheLevel::kG1)) {
    bytes += layout->shape().block_bytes();
  }
  return bytes;
}

}  // namespace cairn
