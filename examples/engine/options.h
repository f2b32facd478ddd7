// Options: the command line of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn::engine {

struct Options {
  std::uint32_t requests = 24;
  std::uint32_t turns = 4;
  std::uint32_t ranks = 1;
  bool processes = false;  // also the only rank is a process
  std::uint32_t device_blocks = 64;
  std::uint32_t step_tokens = 64;
  std::uint64_t seed = 1;
  bool drop_device = false;
  bool json = false;
  bool help = false;
  std::optional<std::uint32_t> rank;  // this process is a rank: ProcessRanks started it
};

// Fails: an option that is not known, lacks its value, or has one that makes no sense; the message says which do.
[[nodiscard]] Result<Options> parse_options(std::span<const char* const> arguments);
[[nodiscard]] std::string_view help_text();

}  // namespace cairn::engine
