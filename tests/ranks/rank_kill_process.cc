// One rank of the tiny engine: rank_process SOCKET RANK TENSOR PIPELINE HEADS LEADER. Its device is plain memory; the steps say what
// the blocks hold. It answers whether loaded blocks have the right bytes.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>

#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/memory/region.h"
#include "tests/ranks/rank_talk_testing.h"

namespace cairn::testing {
namespace {

// The device: one tensor a layer, [K/V][block][token][head][element].
struct Device {
  explicit Device(const KvShape& of_rank) : shape(of_rank) {
    const std::uint64_t bytes = shape.block_bytes() / shape.layers * kTinyDeviceBlocks;
    std::vector<RegionPtr> regions;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      memory.emplace_back(bytes);
      regions.push_back(*external_region(
          {.base = memory.back().data(), .size = bytes, .kind = MemoryKind::kSystem, .keep_alive = {}}));
    }
    layout = *BlockLayout::make({.shape = shape, .arrangement = Arrangement::kLayersKvNhd, .blocks = kTinyDeviceBlocks},
                                std::move(regions));
  }

  [[nodiscard]] KvGroup group() {
    KvGroup group{.name = "all", .layers = {}, .tensors = {}, .element_bits = 16, .page_size = kTinyPage};
    const std::uint64_t plane = std::uint64_t{kTinyDeviceBlocks} * kTinyPage * shape.heads * shape.head_size;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      group.layers.push_back("layer" + std::to_string(layer));
      group.tensors.push_back(
          {.base = memory[layer].data(),
           .bytes = memory[layer].size(),
           .kind = MemoryKind::kSystem,
           .axes = {TensorAxis::kKv, TensorAxis::kBlock, TensorAxis::kToken, TensorAxis::kHead, TensorAxis::kElement},
           .sizes = {2, kTinyDeviceBlocks, kTinyPage, shape.heads, shape.head_size},
           .strides = {static_cast<std::int64_t>(plane), kTinyPage * shape.heads * shape.head_size,
                       shape.heads * shape.head_size, shape.head_size, 1}});
    }
    return group;
  }

  KvShape shape;
  std::vector<std::vector<std::byte>> memory;
  BlockLayoutPtr layout;
};

int serve(int fd, std::uint32_t rank, const TinyGrid& grid, const char* leader) {
  const KvShape whole = tiny_shape(grid);
  Device device(RankShare::make(grid.ranks, rank, whole)->shape(whole));
  const KvGroup group = device.group();
  Result<std::unique_ptr<WorkerConnector>> worker =
      WorkerConnector::make({group}, group.layers,
                            // An outcome that the leader does not send never comes, and the test fails.
                            {.rank = rank,
                             .ranks = grid.ranks,
                             .address = *RankAddress::parse(leader),
                             .answer_limit = std::chrono::hours(24)});
  if (!worker) {
    std::cerr << "rank " << rank << ": " << worker.error().to_string() << "\n";
    return 1;
  }
  TinyStep step;
  std::size_t unheard = 0;
  while (receive_step(fd, step)) {
    TinyAnswer answer;
    // A step that cannot be bound continues without a cache: none of its blocks may be loaded or saved.
    const bool is_bound = (*worker)->bind(step.metadata).has_value() && (*worker)->start_load().has_value();
    for (const TinyBlock& block : step.check) {
      answer.wrong += find_stranger(*device.layout, block.block, seed_of_part(block.seed, grid, rank)) ? 1 : 0;
    }
    for (const TinyBlock& block : step.fill) {
      write_pattern(*device.layout, block.block, seed_of_part(block.seed, grid, rank));
    }
    if (is_bound) {
      (void)(*worker)->save_step();
    }
    if (const Result<IterationMetadata> metadata = IterationMetadata::decode(step.metadata); metadata && is_bound) {
      unheard += metadata->loads.size() + metadata->saves.size();
    }
    const WorkerOutcomes report = (*worker)->take_outcomes();
    unheard -= report.loaded.size() + report.saved.size();
    answer.failed = static_cast<std::uint32_t>(report.failed_blocks.size());
    answer.unheard = static_cast<std::uint32_t>(unheard);
    if (!write_all(fd, &answer, sizeof answer)) {
      break;
    }
  }
  return 0;
}

}  // namespace
}  // namespace cairn::testing

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "rank_process SOCKET RANK TENSOR PIPELINE HEADS LEADER\n";
    return 2;
  }
  const auto number = [&](int i) { return static_cast<std::uint32_t>(std::atoi(argv[i])); };
  return cairn::testing::serve(std::atoi(argv[1]), number(2), {.ranks = {number(3), number(4)}, .heads = number(5)},
                               argv[6]);
}
