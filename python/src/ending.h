// How requests end, as Python says it.
#pragma once

#include <optional>
#include <string_view>

#include "cairn/base/str_cat.h"
#include "cairn/evict/request_ending.h"
#include "python/src/binding.h"

namespace cairn::python {

// Raises unless it is the name of an ending (parse_ending()).
[[nodiscard]] inline RequestEnding ending_of(std::string_view name) {
  const std::optional<RequestEnding> ending = parse_ending(name);
  if (!ending) {
    raise(ErrorCode::kInvalidArgument,
          str_cat("unknown ending '", name, "' (expected tool_call, end_of_turn, length, abort or unknown)"));
  }
  return *ending;
}

}  // namespace cairn::python
