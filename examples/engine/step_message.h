// Encodes and decodes the messages between the engine and its rank processes (channel.h).
#pragma once

#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/channel.h"
#include "examples/engine/engine_rank.h"
#include "examples/engine/step.h"

namespace cairn::engine {

[[nodiscard]] inline MessageWriter write_step(const StepInput& input) {
  MessageWriter out;
  out.put_all(std::span(input.rows));
  out.put(static_cast<std::uint64_t>(input.tables.size()));
  for (const auto& table : input.tables) {
    out.put_all(std::span(table));
  }
  out.put_all(std::span(input.sampled_rows));
  out.put_all(std::span(input.metadata));
  return out;
}

[[nodiscard]] inline Result<StepInput> read_step(std::span<const std::byte> bytes) {
  MessageReader in(bytes);
  StepInput input;
  input.rows = in.get_all<StepRow>();
  const auto tables = in.get<std::uint64_t>();
  for (std::uint64_t i = 0; i < tables && i < input.rows.size(); ++i) {
    input.tables.push_back(in.get_all<DeviceBlock>());
  }
  input.sampled_rows = in.get_all<std::uint32_t>();
  input.metadata = in.get_all<std::byte>();
  if (!in.complete()) {
    return fail(ErrorCode::kCorrupt, "a step from the engine does not decode");
  }
  return input;
}

[[nodiscard]] inline MessageWriter write_output(const StepOutput& output) {
  MessageWriter out;
  out.put_all(std::span(output.samples));
  out.put_all(std::span(output.failed_blocks));
  return out;
}

[[nodiscard]] inline Result<StepOutput> read_output(std::span<const std::byte> bytes) {
  MessageReader in(bytes);
  StepOutput output;
  output.samples = in.get_all<Sample>();
  output.failed_blocks = in.get_all<DeviceBlock>();
  if (!in.complete()) {
    return fail(ErrorCode::kCorrupt, "what a rank answered to a step does not decode");
  }
  return output;
}

[[nodiscard]] inline MessageWriter write_config(const RankConfig& config) {
  MessageWriter out;
  out.put(config.model);
  out.put(config.ranks);
  out.put(config.device_blocks);
  out.put_all(std::span(config.leader));
  out.put(config.faults);
  out.put(config.fault_seed);
  return out;
}

[[nodiscard]] inline Result<RankConfig> read_config(std::span<const std::byte> bytes) {
  MessageReader in(bytes);
  RankConfig config;
  config.model = in.get<ModelShape>();
  config.ranks = in.get<RankGrid>();
  config.device_blocks = in.get<std::uint32_t>();
  const auto leader = in.get_all<char>();
  config.leader.assign(leader.begin(), leader.end());
  config.faults = in.get<double>();
  config.fault_seed = in.get<std::uint64_t>();
  if (!in.complete()) {
    return fail(ErrorCode::kCorrupt, "the engine's first message does not decode");
  }
  return config;
}

template <typename T>
[[nodiscard]] MessageWriter write_values(std::span<const T> values) {
  MessageWriter out;
  out.put_all(values);
  return out;
}

template <typename T>
[[nodiscard]] Result<std::vector<T>> read_values(std::span<const std::byte> bytes) {
  MessageReader in(bytes);
  std::vector<T> values = in.get_all<T>();
  if (!in.complete()) {
    return fail(ErrorCode::kCorrupt, "a message between engine and rank does not decode");
  }
  return values;
}

}  // namespace cairn::engine
