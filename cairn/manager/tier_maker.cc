#include "cairn/manager/tier_maker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cairn/manager/tier_memory.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/system_region.h"
#include "cairn/tier/disk_layout.h"
#include "cairn/tier/disk_opening.h"

namespace cairn {

namespace {

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::uint32_t blocks_of(std::uint64_t size, std::uint64_t step) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(size / step, std::numeric_limits<std::uint32_t>::max() - 1));
}

Result<std::unique_ptr<Tier>> pool_tier(Tier::Options&& options, const char* key, Result<BlockLayoutPtr> layout) {
  if (!layout) {
    return at_key(key, std::move(layout).error());
  }
  options.layout = *std::move(layout);
  Result<std::unique_ptr<Tier>> tier = Tier::make(std::move(options));
  return tier ? std::move(tier) : at_key(key, std::move(tier).error());
}

}  // namespace

Tier::Options TierMaker::options(CacheLevel level, const TierConfig& tier, const Followers& followers,
                                 std::uint32_t blocks) const {
  Tier::Options options{.level = level,
                        .space = space_.id(),
                        .health = config_.health,
                        .clock = parts_.clock,
                        .on_change = followers.on_change,
                        .on_dropped = followers.on_dropped};
  options.pool.emplace();
  options.pool->block_size = config_.block_size;
  options.pool->policy = tier.policy;
  options.pool->leaves_first = tier.leaves_first;
  options.pool->time_to_live = config_.requests.retention;
  options.pool->hints = config_.requests.retention;
  const bool takes_saves = level == (config_.host.is_there() ? CacheLevel::kG2 : CacheLevel::kG3);
  if (takes_saves && !config_.requests.tenants.empty()) {
    options.pool->tenants = {{.name = "default"}};
    options.pool->tenants.insert(options.pool->tenants.end(), config_.requests.tenants.begin(),
                                 config_.requests.tenants.end());
  }
  options.pool->seed = parts_.seed;
  options.pool->returns = followers.returns;
  options.pool->observers = followers.observers;
  if (followers.low_water > 0) {
    // At least one block, at most a quarter: twice as many may be claimed.
    options.pool->low_water = std::clamp<std::uint32_t>(static_cast<std::uint32_t>(followers.low_water * blocks), 1,
                                                        std::max<std::uint32_t>(1, blocks / 4));
    options.pool->when_low = followers.when_low;
  }
  return options;
}

std::uint32_t TierMaker::device_capacity() const {
  const DeviceConfig& device = config_.device;
  if (device.engine_layout != nullptr) {
    return device.engine_layout->blocks();
  }
  return device.blocks != 0 ? device.blocks : blocks_of(device.size, shape_.block_bytes());
}

std::uint32_t TierMaker::host_capacity() const {
  return std::max(host_blocks(), blocks_of(config_.host.max_size, host_step()));
}

std::uint32_t TierMaker::count_disk_blocks() const {
  const DiskConfig& disk = config_.disk;
  if (disk.size == 0) {
    return disk.blocks;
  }
  const DiskFootprint footprint = parts_.elsewhere_disk_bytes != 0
                                      ? DiskFootprint{parts_.elsewhere_disk_bytes, parts_.elsewhere_disk_files}
                                      : DiskFootprint{round_up(shape_.block_bytes(), DiskFile::kAlignment)};
  if (!parts_.disk_entries_in_file) {
    return footprint.blocks_in(disk.size);
  }
  if (const Result<DiskFile> file = DiskFile::inspect(disk.path); file && disk.opening != DiskOpening::kFresh) {
    // Another grid of ranks has other headers and other padding; the blocks are not lost for that.
    const std::uint64_t bytes = footprint.bytes_of(file->geometry().blocks);
    if (std::max(bytes, disk.size) - std::min(bytes, disk.size) <= disk.size / 50) {
      return file->geometry().blocks;
    }
  }
  return footprint.blocks_in(disk.size);
}

std::uint32_t TierMaker::blocks() const {
  const std::uint64_t all = std::uint64_t{device_capacity()} + host_capacity() + disk_blocks_ +
                            (config_.remote.is_there() ? config_.remote.blocks : 0);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, std::numeric_limits<std::uint32_t>::max()));
}

Result<BlockLayoutPtr> TierMaker::device_layout() const {
  const DeviceConfig& device = config_.device;
  if (device.engine_layout != nullptr) {
    return device.engine_layout;
  }
  const std::uint32_t blocks = device_capacity();
  const BlockLayout::Options options{.shape = shape_, .arrangement = device.layout, .blocks = blocks, .alignment = 16};
  CAIRN_TRY_ASSIGN(const std::vector<std::uint64_t> sizes, BlockLayout::region_sizes(options));
  std::vector<RegionPtr> regions;
  for (const std::uint64_t size : sizes) {
    CAIRN_TRY_ASSIGN(RegionPtr region, device.memory == DeviceMemory::kGpu
                                           ? device_region({.size = size, .device = device.gpu})
                                           : system_region({.size = size, .progress = parts_.progress}));
    regions.push_back(std::move(region));
  }
  return BlockLayout::make(options, std::move(regions));
}

Result<std::unique_ptr<Tier>> TierMaker::device(const Followers& followers) const {
  Result<BlockLayoutPtr> layout = device_layout();
  if (!layout) {
    return at_key("device", std::move(layout).error());
  }
  if ((*layout)->shape() != shape_) {
    return at_key("device", {ErrorCode::kInvalidArgument,
                             "the engine's layout has another shape than [model] says; give both the same shape"});
  }
  Tier::Options made = options(CacheLevel::kG1, config_.device, followers, (*layout)->blocks());
  made.layout = *std::move(layout);
  made.pool->duplicates = config_.device.duplicates;
  if (config_.device.managed_by_engine) {
    made.pool.reset();
  }
  Result<std::unique_ptr<Tier>> tier = Tier::make(std::move(made));
  return tier ? std::move(tier) : at_key("device", std::move(tier).error());
}

std::uint64_t TierMaker::host_step() const {
  return parts_.elsewhere_host_bytes != 0 ? parts_.elsewhere_host_bytes
                                          : round_up(shape_.block_bytes(), host_alignment(config_.disk.is_there()));
}

std::uint32_t TierMaker::host_blocks() const {
  return config_.host.blocks != 0 ? config_.host.blocks : blocks_of(config_.host.size, host_step());
}

Result<std::unique_ptr<Tier>> TierMaker::host(const Followers& followers) const {
  const HostConfig& host = config_.host;
  const std::uint32_t blocks = host_capacity();
  const BlockLayout::Options layout_options{.shape = shape_,
                                            .arrangement = Arrangement::kContiguousNhd,
                                            .blocks = blocks,
                                            .alignment = host_alignment(config_.disk.is_there())};
  Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(layout_options);
  if (!sizes) {
    return at_key("host", std::move(sizes).error());
  }
  if (parts_.elsewhere) {
    return pool_tier(options(CacheLevel::kG2, host, followers, blocks), "host",
                     BlockLayout::elsewhere(shape_, blocks, MemoryKind::kPinned));
  }
  const bool has_gpu = config_.device.memory == DeviceMemory::kGpu && config_.device.is_there();
  Result<RegionPtr> region = host_region(host, sizes->front(), has_gpu, config_.device.gpu, parts_.progress);
  if (!region) {
    return at_key("host", std::move(region).error());
  }
  return pool_tier(options(CacheLevel::kG2, host, followers, blocks), "host",
                   BlockLayout::make(layout_options, {*std::move(region)}));
}

Result<std::unique_ptr<Tier>> TierMaker::disk(const Followers& followers) const {
  const DiskConfig& disk = config_.disk;
  if (parts_.elsewhere && !parts_.disk_entries_in_file) {
    return pool_tier(options(CacheLevel::kG3, disk, followers, disk_blocks_), "disk",
                     BlockLayout::elsewhere(shape_, disk_blocks_, MemoryKind::kFile));
  }
  DiskGeometry geometry{
      .space = space_, .blocks = disk_blocks_, .keeps_secret = has_secret(space_.scheme), .secret = secret_};
  if (!parts_.elsewhere) {
    geometry.block_bytes = shape_.block_bytes();
    geometry.row_bytes = shape_.row_bytes();
  }
  Result<OpenedDisk> opened = open_disk(disk.path, geometry, disk.opening);
  if (!opened) {
    return at_key("disk.path", std::move(opened).error());
  }
  DiskFile file = std::move(opened->file);
  Tier::Options made = options(CacheLevel::kG3, disk, followers, geometry.blocks);
  made.damage = std::move(opened->damage);
  if (parts_.elsewhere) {
    made.file = std::move(file);
    return pool_tier(std::move(made), "disk", BlockLayout::elsewhere(shape_, geometry.blocks, MemoryKind::kFile));
  }
  Result<RegionPtr> region = disk_region(file, disk.direct);
  if (!region) {
    return at_key("disk.path", std::move(region).error());
  }
  Result<BlockLayoutPtr> layout = disk_layout(file, shape_, *std::move(region));
  made.file = std::move(file);
  return pool_tier(std::move(made), "disk", std::move(layout));
}

Result<std::unique_ptr<Tier>> TierMaker::remote(const Followers& followers) const {
  const RemoteConfig& remote = config_.remote;
  Tier::Options made = options(CacheLevel::kG4, {.policy = remote.policy}, followers, remote.blocks);
  made.fence_store = followers.fence_store;
  return pool_tier(std::move(made), "remote", BlockLayout::elsewhere(shape_, remote.blocks, MemoryKind::kSystem));
}

}  // namespace cairn
