#include "cairn/evict/request_ending.h"

#include <utility>

namespace cairn {

std::string_view to_string(RequestEnding ending) {
  switch (ending) {
    case RequestEnding::kUnknown:
      return "unknown";
    case RequestEnding::kToolCall:
      return "tool_call";
    case RequestEnding::kEndOfTurn:
      return "end_of_turn";
    case RequestEnding::kLength:
      return "length";
    case RequestEnding::kAbort:
      return "abort";
  }
  return "unknown";
}

std::optional<RequestEnding> parse_ending(std::string_view name) {
  constexpr std::pair<std::string_view, RequestEnding> kOtherNames[] = {
      {"tool_calls", RequestEnding::kToolCall},
      {"tool_use", RequestEnding::kToolCall},
      {"function_call", RequestEnding::kToolCall},
      {"stop", RequestEnding::kEndOfTurn},
      {"end_turn", RequestEnding::kEndOfTurn},
      {"stop_sequence", RequestEnding::kEndOfTurn},
      {"max_tokens", RequestEnding::kLength},
      {"cancelled", RequestEnding::kAbort},
      {"error", RequestEnding::kAbort},
  };
  for (const RequestEnding ending : kAllEndings) {
    if (to_string(ending) == name) {
      return ending;
    }
  }
  for (const auto& [other, ending] : kOtherNames) {
    if (other == name) {
      return ending;
    }
  }
  return std::nullopt;
}

}  // namespace cairn
