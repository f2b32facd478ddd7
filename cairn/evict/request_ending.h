// RequestEnding: how a request ended, as far as the engine says so. Sessions return sooner after a tool call than after
// the end of a turn, so a policy that knows it keeps the right ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cairn {

enum class RequestEnding : std::uint8_t {
  kUnknown,    // the engine does not say
  kToolCall,   // the model called a tool, whose result comes with the next request
  kEndOfTurn,  // the answer is complete: a person is next
  kLength,     // the answer was cut off at its longest
  kAbort,      // somebody gave the request up
};
inline constexpr RequestEnding kAllEndings[] = {RequestEnding::kUnknown, RequestEnding::kToolCall,
                                                RequestEnding::kEndOfTurn, RequestEnding::kLength,
                                                RequestEnding::kAbort};

// "unknown", "tool_call", "end_of_turn", "length", "abort"
[[nodiscard]] std::string_view to_string(RequestEnding ending);
// Besides these names, those that engines and their interfaces use: "tool_calls", "tool_use" and "function_call";
// "stop", "end_turn" and "stop_sequence"; "max_tokens"; "cancelled" and "error". std::nullopt for any other.
[[nodiscard]] std::optional<RequestEnding> parse_ending(std::string_view name);

}  // namespace cairn
