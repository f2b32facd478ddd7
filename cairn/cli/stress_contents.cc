#include "cairn/cli/stress_contents.h"

#include <algorithm>
#include <future>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/cuda_executor.h"

namespace cairn::cli {

namespace {

constexpr std::uint32_t kStagingBlocks = 16;

std::uint64_t seed_of(const BlockKey& key) { return key.high_word() * 0x9E3779B97F4A7C15U ^ key.low_word(); }

std::string wrong(const BlockLayout& layout, const BlockKey& key, std::uint64_t row) {
  return str_cat("block ", key.to_string(), ": row ", row, " of ", layout.shape().rows(), " is not what was written");
}

}  // namespace

Result<std::unique_ptr<StressContents>> StressContents::make(BlockLayoutPtr layout) {
  std::unique_ptr<StressContents> contents(new StressContents(std::move(layout)));
  if (contents->layout_->kind() == MemoryKind::kDevice) {
    CAIRN_TRY(contents->make_staging());
  }
  return contents;
}

Status StressContents::make_staging() {
  const BlockLayout::Options options{.shape = layout_->shape(), .blocks = kStagingBlocks, .alignment = 256};
  CAIRN_TRY_ASSIGN(const std::vector<std::uint64_t> sizes, BlockLayout::region_sizes(options));
  CAIRN_TRY_ASSIGN(RegionPtr region,
                   pinned_region({.size = sizes.front(), .device = layout_->device(), .required = true}));
  Result<BlockLayoutPtr> staging = BlockLayout::make(options, {std::move(region)});
  Result<std::unique_ptr<CudaExecutor>> executor = CudaExecutor::create({.device = layout_->device()});
  if (!staging || !executor) {
    return Unexpected(staging ? std::move(executor).error() : std::move(staging).error());
  }
  staging_ = *std::move(staging);
  executor_ = *std::move(executor);
  Result<CopyPlanPtr> in = CopyPlan::make(staging_, layout_);
  Result<CopyPlanPtr> out = CopyPlan::make(layout_, staging_);
  if (!in || !out) {
    return Unexpected(in ? std::move(out).error() : std::move(in).error());
  }
  in_ = *std::move(in);
  out_ = *std::move(out);
  return {};
}

Status StressContents::copy(const CopyPlanPtr& plan, std::vector<TransferBlock> blocks) {
  std::promise<TransferOutcome> outcome;
  Result<TransferId> id = executor_->submit(
      {.plan = plan, .blocks = std::move(blocks), .verify = Verify::kOff, .done = [&outcome](TransferOutcome&& result) {
         outcome.set_value(std::move(result));
       }});
  if (!id) {
    return Unexpected(std::move(id).error());
  }
  const TransferOutcome result = outcome.get_future().get();
  return result.all_done() ? Status() : fail(ErrorCode::kIo, result.error);
}

Status StressContents::write(std::span<const BlockId> block_ids, std::span<const BlockKey> keys) {
  if (staging_ == nullptr) {
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      write_pattern(*layout_, index_of(block_ids[i]), seed_of(keys[i]));
    }
    return {};
  }
  const MutexLock lock(mutex_);
  for (std::size_t first = 0; first < block_ids.size(); first += kStagingBlocks) {
    std::vector<TransferBlock> blocks;
    for (std::size_t i = first; i < std::min(block_ids.size(), first + kStagingBlocks); ++i) {
      const auto place = static_cast<std::uint32_t>(i - first);
      write_pattern(*staging_, place, seed_of(keys[i]));
      blocks.push_back({.pair = {place, index_of(block_ids[i])}});
    }
    CAIRN_TRY(copy(in_, std::move(blocks)));
  }
  return {};
}

Result<std::optional<std::string>> StressContents::find_wrong(const ImmutableBlocks& blocks) {
  if (staging_ == nullptr) {
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      if (const auto row = find_stranger(*layout_, index_of(blocks.block_ids()[i]), seed_of(blocks.key(i)))) {
        return std::optional(wrong(*layout_, blocks.key(i), *row));
      }
    }
    return std::optional<std::string>();
  }
  const MutexLock lock(mutex_);
  for (std::uint32_t first = 0; first < blocks.size(); first += kStagingBlocks) {
    const std::uint32_t end = std::min(blocks.size(), first + kStagingBlocks);
    std::vector<TransferBlock> copies;
    for (std::uint32_t i = first; i < end; ++i) {
      copies.push_back({.pair = {index_of(blocks.block_ids()[i]), i - first}});
    }
    CAIRN_TRY(copy(out_, std::move(copies)));
    for (std::uint32_t i = first; i < end; ++i) {
      if (const auto row = find_stranger(*staging_, i - first, seed_of(blocks.key(i)))) {
        return std::optional(wrong(*layout_, blocks.key(i), *row));
      }
    }
  }
  return std::optional<std::string>();
}

}  // namespace cairn::cli
