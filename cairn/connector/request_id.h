// RequestId: the engine's name for a request: a text or a number, as the engine has it.
//
// Does:     compares and hashes as what it holds; the number 7 and the text "7" are two requests.
// Threads:  a plain value.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>

namespace cairn {

class RequestId {
 public:
  using Value = std::variant<std::uint64_t, std::string>;

  template <std::unsigned_integral Number>
  RequestId(Number number) : RequestId(Value(std::uint64_t{number})) {}  // NOLINT(google-explicit-constructor)
  RequestId(std::string text) : RequestId(Value(std::move(text))) {}     // NOLINT(google-explicit-constructor)
  RequestId(const char* text) : RequestId(std::string(text)) {}          // NOLINT(google-explicit-constructor)

  // For messages: the number, or the text in quotes.
  [[nodiscard]] std::string to_string() const {
    return number() != nullptr ? std::to_string(*number()) : "\"" + *text() + "\"";
  }
  // What it is; the other one is none.
  [[nodiscard]] const std::uint64_t* number() const { return std::get_if<std::uint64_t>(&value_); }
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&value_); }
  [[nodiscard]] std::size_t hash() const { return hash_; }

  friend bool operator==(const RequestId&, const RequestId&) = default;

 private:
  explicit RequestId(Value value) : hash_(std::hash<Value>()(value)), value_(std::move(value)) {}

  std::size_t hash_;  // kept, and first: a lookup hashes nothing, and most that differ do so here
  Value value_;
};

}  // namespace cairn

template <>
struct std::hash<cairn::RequestId> {
  std::size_t operator()(const cairn::RequestId& id) const noexcept { return id.hash(); }
};
