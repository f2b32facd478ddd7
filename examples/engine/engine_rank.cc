#include "examples/engine/engine_rank.h"

#include <chrono>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/transfer/fault_executor.h"

namespace cairn::engine {
namespace {

std::string layer_name(std::uint32_t layer) { return str_cat("layer.", layer); }

// Describes the buffer of a layer to Cairn.
KvTensor tensor_of(ModelShard& shard, std::uint32_t layer) {
  const std::span<float> buffer = shard.kv_buffer(layer);
  const std::vector<std::uint64_t> sizes = {shard.config().kv, shard.device_blocks(), kBlockTokens,
                                            shard.part().kv_heads, kHeadSize};
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t axis = sizes.size() - 1; axis > 0; --axis) {
    strides[axis - 1] = strides[axis] * static_cast<std::int64_t>(sizes[axis]);
  }
  return {.base = buffer.data(),
          .bytes = buffer.size_bytes(),
          .kind = MemoryKind::kSystem,
          .axes = {TensorAxis::kKv, TensorAxis::kBlock, TensorAxis::kToken, TensorAxis::kHead, TensorAxis::kElement},
          .sizes = sizes,
          .strides = strides};
}

KvGroup group_of(ModelShard& shard) {
  KvGroup group{.name = "all layers", .layers = {}, .tensors = {}, .element_bits = 32, .page_size = kBlockTokens};
  for (std::uint32_t layer = 0; layer < shard.part().layers.count; ++layer) {
    group.layers.push_back(layer_name(shard.part().layers.first + layer));
    group.tensors.push_back(tensor_of(shard, layer));
  }
  return group;
}

// For a `share` of the blocks the copy fails, is short or late, or has wrong bytes.
std::unique_ptr<TransferExecutor> with_faults(std::unique_ptr<TransferExecutor> inside, double share,
                                              std::uint64_t seed) {
  FaultOptions options{.seed = seed, .delay = std::chrono::milliseconds(2)};
  for (const Fault fault : {Fault::kFail, Fault::kShort, Fault::kDelay, Fault::kCorruptInFlight}) {
    options.rules.push_back({.fault = fault, .chance = share / 4});
  }
  return std::make_unique<FaultExecutor>(steady_clock(), std::move(inside), std::move(options));
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::make(const RankConfig& config, std::uint32_t rank, LocalLeader* leader) {
  std::unique_ptr<Rank> made(new Rank(config, rank));
  if (leader == nullptr && config.leader.empty()) {
    return made;
  }
  WorkerConnector::Options options{
      .rank = rank, .ranks = config.ranks, .first_layer = made->shard_.part().layers.first, .leader = leader};
  if (leader == nullptr) {
    const auto address = RankAddress::parse(config.leader);
    if (!address) {
      return Unexpected(address.error());
    }
    options.address = *address;
  }
  if (config.faults > 0) {
    options.around = [share = config.faults, seed = config.fault_seed + rank](
                         ExecutorKind, std::unique_ptr<TransferExecutor> inside) {
      return with_faults(std::move(inside), share, seed);
    };
  }
  KvGroup group = group_of(made->shard_);
  std::vector<std::string> layers = group.layers;
  auto connector = WorkerConnector::make({std::move(group)}, std::move(layers), std::move(options));
  if (!connector) {
    return Unexpected(connector.error());
  }
  made->connector_ = std::move(*connector);
  return made;
}

Status Rank::begin(const StepInput& input) {
  shard_.begin(input);
  if (connector_) {
    if (Status bound = connector_->bind(input.metadata); !bound) {
      return bound;
    }
    if (Status started = connector_->start_load(); !started) {
      return started;
    }
    if (input.rows.empty()) {
      return connector_->save_step();
    }
  }
  return {};
}

std::span<const float> Rank::attend(std::uint32_t layer) {
  if (connector_) {
    // Blocks that were not loaded are in the outcomes, and this step's results from them are not used.
    static_cast<void>(connector_->wait_for_layer(layer));
  }
  const std::span<const float> heads = shard_.attend(layer);
  if (connector_) {
    static_cast<void>(connector_->save_layer(layer));
  }
  return heads;
}

StepOutput Rank::end() {
  StepOutput output;
  if (is_sampler_) {
    output.samples = shard_.samples();
  }
  if (connector_) {
    for (const BlockId block : connector_->take_outcomes().failed_blocks) {
      output.failed_blocks.push_back(index_of(block));
    }
  }
  return output;
}

}  // namespace cairn::engine
