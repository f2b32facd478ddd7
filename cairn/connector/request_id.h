// RequestId: the engine's name for a request: a text or a number, as the engine has it.
//
// Does:     compares and hashes as what it holds; the number 7 and the text "7" are two requests.
// Threads:  a plain value.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace cairn {

class RequestId {
 public:
  template <std::unsigned_integral Number>
  RequestId(Number number)  // NOLINT(google-explicit-constructor)
      : hash_(std::hash<std::uint64_t>()(number)), number_(number) {}
  RequestId(std::string text)  // NOLINT(google-explicit-constructor)
      : hash_(std::hash<std::string>()(text)), text_(std::move(text)) {}
  RequestId(const char* text) : RequestId(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  // For messages: the number, or the text in quotes.
  [[nodiscard]] std::string to_string() const {
    return number() != nullptr ? std::to_string(*number()) : "\"" + *text() + "\"";
  }
  // What it is; the other one is none.
  [[nodiscard]] const std::uint64_t* number() const { return text_ ? nullptr : &number_; }
  [[nodiscard]] const std::string* text() const { return text_ ? &*text_ : nullptr; }
  [[nodiscard]] std::size_t hash() const { return hash_; }

  friend bool operator==(const RequestId&, const RequestId&) = default;

 private:
  std::size_t hash_;  // kept, and first: a lookup hashes nothing, and most that differ do so here
  std::uint64_t number_ = 0;
  // Not a std::variant of both: that of g++ 12 does not survive a copy of its text for which there is no memory.
  std::optional<std::string> text_;
};

}  // namespace cairn

template <>
struct std::hash<cairn::RequestId> {
  std::size_t operator()(const cairn::RequestId& id) const noexcept { return id.hash(); }
};
