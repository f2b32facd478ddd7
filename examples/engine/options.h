// Options: the command line of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/result.h"
#include "examples/engine/example_engine.h"

namespace cairn::engine {

struct Options {
  EngineConfig engine;
  bool restart = false;  // a second run after the first
  bool json = false;
  bool help = false;
  std::optional<std::uint32_t> rank;  // this process is a rank: ProcessRanks started it
};

// Errors: an unknown option, a missing value or an invalid one; the message says what is valid.
[[nodiscard]] Result<Options> parse_options(std::span<const char* const> arguments);
[[nodiscard]] std::string_view help_text();

}  // namespace cairn::engine
