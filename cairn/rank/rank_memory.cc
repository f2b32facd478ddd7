#include "cairn/rank/rank_memory.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/manager/tier_memory.h"
#include "cairn/tier/disk_layout.h"
#include "cairn/tier/disk_lock.h"
#include "cairn/tier/disk_opening.h"
#include "cairn/tier/disk_rank_files.h"
#include "cairn/tier/disk_reshard.h"

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

// Several groups: the model does not say their shapes.
Status check_groups(const ManagerConfig& config, std::span<const BlockLayoutPtr> layouts) {
  for (const BlockLayoutPtr& layout : layouts) {
    if (const std::uint32_t page = layout->shape().page_size; page != config.block_size && page != kPageOfState) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("a group has blocks of ", page, " tokens, the leader of ", config.block_size));
    }
  }
  return check_blocks(config, layouts);
}

Status check_device(const ManagerConfig& config, const BlockLayoutPtr& layout, const RankClaim& claim,
                    const RankShare& share) {
  if (const std::string differs = difference(layout->shape(), share.shape(config.shape())); !differs.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the device memory of rank ", claim.rank, " of ", claim.ranks.to_string(),
                        " is not its share of the leader's model: ", differs));
  }
  return check_blocks(config, std::span(&layout, 1));
}

// If K and V lie apart, each layer of the model is two of the shape.
BlockPart numbering_of(const KvShape& device, const RankShare& share) {
  const std::uint32_t each = device.layers / share.layers.count;
  return {.whole_head = share.heads.first_head,
          .whole_heads = share.whole_heads,
          .whole_layer = share.layers.first * each,
          .whole_layers = share.whole_layers * each};
}

// A file that fits is kept even with kFresh.
Result<OpenedDisk> open_file(const std::string& path, const DiskGeometry& geometry, DiskOpening opening) {
  Result<OpenedDisk> opened = open_disk(path, geometry, opening == DiskOpening::kFresh ? DiskOpening::kReuse : opening);
  const bool replace = !opened && opening == DiskOpening::kFresh;
  return replace ? open_disk(path, geometry, opening) : std::move(opened);
}

// What changes the files of disk.path for this grid.
std::string reshard_command(const ManagerConfig& config, const RankClaim& claim, const LayerRange& layers) {
  const RankGrid& ranks = claim.ranks;
  const bool is_even = layers == even_layers(ranks.stage_of(claim.rank), ranks.pipeline, config.model.layers);
  return str_cat("cairn disk reshard ", config.disk.path, " --tensor ", ranks.tensor, " --pipeline ", ranks.pipeline,
                 is_even ? "" : " --layers LAYERS,OF,EACH,STAGE");
}

// Files that ranks of another grid left would be of no use to this rank, and their blocks lost: they stay until somebody says what
// becomes of them. `own`: the name of the rank's file after disk.path.
Status check_grid(const ManagerConfig& config, const RankClaim& claim, const std::string& own) {
  const std::string& path = config.disk.path;
  if (config.disk.opening == DiskOpening::kFresh) {
    return remove_other_grids(path, own);
  }
  CAIRN_TRY_ASSIGN(const LayerRange layers, claim.layer_range(config.model.layers));
  const std::string command = reshard_command(config, claim, layers);
  std::error_code none;
  if (std::filesystem::exists(reshard_journal(path), none)) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("`cairn disk reshard` of ", path, " was killed before it was done; run `", command,
                        "`, or start anew with disk.opening = \"fresh\""));
  }
  const std::vector<std::string> others = files_of_another_grid(path, own);
  if (others.empty()) {
    return {};
  }
  const bool is_of_groups = RankFileName::parse(own)->is_of_group();
  return fail(ErrorCode::kFailedPrecondition,
              str_cat(others.front(), " was written by ranks of another tensor or pipeline size than ",
                      claim.ranks.to_string(), "; ",
                      is_of_groups ? "files of several kinds of layers cannot be rewritten: go back to that size"
                                   : str_cat("to keep its blocks, run `", command, "`"),
                      ", or start anew with disk.opening = \"fresh\""));
}

}  // namespace

Result<RankMemory> RankMemory::make(const ManagerConfig& config, const LayoutGroups& device, const RankClaim& claim,
                                    const RankStorage& storage) {
  RankMemory memory;
  if (Status fits = memory.take_device(config, device, claim, storage.store); !fits) {
    return at_key("device", fits.error());
  }
  if (config.host.blocks != 0) {
    if (Status made = memory.add_host(config, storage.host_memory); !made) {
      return at_key("host", made.error());
    }
  }
  if (config.disk.blocks != 0) {
    const std::string own = str_cat(memory.name_, device.layouts().size() > 1 ? ".g0" : "");
    if (Status fits = check_grid(config, claim, own); !fits) {
      return at_key("disk", fits.error());
    }
    if (Status made = memory.add_disk(config, storage.store); !made) {
      return at_key("disk", made.error());
    }
  }
  return memory;
}

Status RankMemory::take_device(const ManagerConfig& config, const LayoutGroups& device, const RankClaim& claim,
                               RankStore store) {
  CAIRN_TRY_ASSIGN(const LayerRange layers, claim.layer_range(config.model.layers));
  rank_ = claim.rank;
  if (device.layouts().size() > 1) {
    CAIRN_TRY(check_groups(config, device.layouts()));
    name_ = str_cat("l", layers.first, "-", layers.end() - 1, ".t", claim.ranks.tensor_rank_of(claim.rank), "of",
                    claim.ranks.tensor);
  } else {
    CAIRN_TRY_ASSIGN(const RankShare share, RankShare::make(claim.ranks, claim.rank, config.shape(), layers));
    CAIRN_TRY(check_device(config, device.layouts().front(), claim, share));
    numbering_ = numbering_of(device.layouts().front()->shape(), share);
    replica_ = share.heads.replica;
    name_ = share.name();
    if (store == RankStore::kOwn && replica_ > 0) {
      name_ += str_cat(".c", replica_);
    }
  }
  layouts_[index_of(CacheLevel::kG1)].assign(device.layouts().begin(), device.layouts().end());
  return {};
}

Status RankMemory::add_host(const ManagerConfig& config, const SharedMemoryPtr& shared) {
  for (const BlockLayoutPtr& device : layouts(CacheLevel::kG1)) {
    const BlockLayout::Options options{
        .shape = device->shape(),
        .arrangement = Arrangement::kContiguousNhd,
        .blocks = config.host.blocks,
        .alignment = shared != nullptr ? kSharedBlockAlignment : host_alignment(config.disk.blocks != 0)};
    CAIRN_TRY_ASSIGN(const std::vector<std::uint64_t> sizes, BlockLayout::region_sizes(options));
    const bool has_gpu = device->kind() == MemoryKind::kDevice;
    CAIRN_TRY_ASSIGN(RegionPtr region, host_region(config.host, sizes.front(), has_gpu,
                                                   has_gpu ? device->device() : config.device.gpu, {}, shared));
    CAIRN_TRY_ASSIGN(BlockLayoutPtr layout, BlockLayout::make(options, {std::move(region)}));
    layouts_[index_of(CacheLevel::kG2)].push_back(std::move(layout));
  }
  return {};
}

Status RankMemory::add_disk(const ManagerConfig& config, RankStore store) {
  const std::span<const BlockLayoutPtr> device = layouts(CacheLevel::kG1);
  for (std::size_t group = 0; group < device.size(); ++group) {
    const KvShape& shape = device[group]->shape();
    DiskGeometry geometry{.space = config.space(),
                          .block_bytes = shape.block_bytes(),
                          .row_bytes = shape.row_bytes(),
                          .blocks = config.disk.blocks};
    geometry.space.shard = name_;
    // The leader's entries say which weights the bytes belong to; new weights at run time change nothing here.
    geometry.space.weights_generation = 0;
    if (device.size() > 1) {
      // The model does not say the shape of a group.
      geometry.space.shard += str_cat(".g", group);
      geometry.space.layout += str_cat(", ", shape.layers, "x", shape.kv, "x", shape.heads, "x", shape.head_size);
    }
    const std::string path = str_cat(config.disk.path, ".", geometry.space.shard);
    CAIRN_TRY_ASSIGN(DiskFile file, open_part(path, geometry, config.disk.opening, store));
    CAIRN_TRY_ASSIGN(RegionPtr region, disk_region(file, config.disk.direct));
    CAIRN_TRY_ASSIGN(BlockLayoutPtr layout, disk_layout(file, shape, std::move(region)));
    layouts_[index_of(CacheLevel::kG3)].push_back(std::move(layout));
    files_.push_back(std::move(file));
  }
  return {};
}

Result<DiskFile> RankMemory::open_part(const std::string& path, const DiskGeometry& geometry, DiskOpening opening,
                                       RankStore store) {
  if (store == RankStore::kGuest) {
    return DiskFile::open_beside(path, geometry, replica_);
  }
  CAIRN_TRY_ASSIGN(OpenedDisk opened, open_file(path, geometry, opening));
  if (!opened.damage.empty()) {
    damage_ += str_cat(damage_.empty() ? "" : "; ", opened.damage);
  }
  if (store == RankStore::kKeeper) {
    CAIRN_TRY_ASSIGN(const int seat, disk::open_shared(path, replica_));
    seats_.emplace_back(seat);
  }
  return std::move(opened.file);
}

void RankMemory::sync() const {
  for (const DiskFile& file : files_) {
    (void)file.sync();  // lost blocks are found by their checksums
  }
}

bool RankMemory::is_reserved() const { return std::ranges::all_of(files_, &DiskFile::is_reserved); }

std::uint64_t RankMemory::block_bytes() const {
  std::uint64_t bytes = 0;
  for (const BlockLayoutPtr& layout : layouts(CacheLevel::kG1)) {
    bytes += layout->shape().block_bytes();
  }
  return bytes;
}

}  // namespace cairn
