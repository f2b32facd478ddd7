// RequestId: the engine's name for a request, a text or a number. The number 7 and the text "7" are two requests.
// RequestHandle: the connector's name for it, which is faster to look up.
//
// Thread safety: plain values.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace cairn {

// Names a request of one SchedulerConnector. Never used again; 0 names no request.
enum class RequestHandle : std::uint64_t {};

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
  // One of the two is nullptr.
  [[nodiscard]] const std::uint64_t* number() const { return text_ ? nullptr : &number_; }
  [[nodiscard]] const std::string* text() const { return text_ ? &*text_ : nullptr; }
  [[nodiscard]] std::size_t hash() const { return hash_; }

  friend bool operator==(const RequestId&, const RequestId&) = default;

 private:
  std::size_t hash_;  // first: ids that differ mostly differ here
  std::uint64_t number_ = 0;
  // Not a std::variant: that of g++ 12 breaks if copying the text runs out of memory.
  std::optional<std::string> text_;
};

}  // namespace cairn

template <>
struct std::hash<cairn::RequestId> {
  std::size_t operator()(const cairn::RequestId& id) const noexcept { return id.hash(); }
};
