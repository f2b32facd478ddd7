// How the engine and its rank processes write down what they tell each other (channel.h).
#pragma once

#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/channel.h"
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
  if (!in.complete()) {
    return fail(ErrorCode::kCorrupt, "a step from the engine does not decode");
  }
  return input;
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
