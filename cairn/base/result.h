// Result<T, E>: the value of a fallible operation, or why there is none.
//
// Does:        every fallible boundary returns one. Absence that is not a failure is an std::optional; a broken
//              invariant of our own is CAIRN_CHECK (check.h). The three channels are never mixed.
// Names:       those of std::expected (C++23), so that code reads the same on the day we may use it.
// Threads:     a plain value.
// Aborts:      value() of a failed result, error() of a good one.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "cairn/base/check.h"

namespace cairn {

enum class ErrorCode : unsigned char {
  kInvalidArgument,     // the caller's input is wrong, whatever the state: fix the call
  kFailedPrecondition,  // the input is fine but the object is not in a state for it
  kNotFound,            // what was named does not exist
  kAlreadyExists,       // what was to be made exists
  kExhausted,           // a capacity, quota or budget is used up: retry after something is released
  kOutOfRange,          // a position, index or number beyond what the format or object can hold
  kCorrupt,             // bytes from outside do not decode to anything we wrote
  kUnavailable,         // a device, driver or system facility is not there: the message says what would bring it
  kIo,                  // the system refused or broke off a read, write or copy
  kExpired,             // the deadline passed first
  kCancelled,           // the caller took it back first
};

// The lower-case name, as it stands in messages and in JSON: "invalid_argument".
[[nodiscard]] std::string_view to_string(ErrorCode code);

// What happened, to what, and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;

  // "invalid_argument: block size is 0; give the tokens per block"
  [[nodiscard]] std::string to_string() const;
};

// Wraps an error on its way into a Result: `return Unexpected(Error{...});`
template <typename E>
class Unexpected {
 public:
  explicit Unexpected(E error) : error_(std::move(error)) {}
  [[nodiscard]] E&& error() && { return std::move(error_); }

 private:
  E error_;
};

[[nodiscard]] inline Unexpected<Error> fail(ErrorCode code, std::string message) {
  return Unexpected<Error>(Error{code, std::move(message)});
}

template <typename T, typename E = Error>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = E;

  template <typename U = T>
    requires(std::is_constructible_v<T, U &&> && !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value)  // NOLINT(google-explicit-constructor): a function returns its value as it is
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Unexpected<E> error)  // NOLINT(google-explicit-constructor): and its error through fail()
      : state_(std::in_place_index<1>, std::move(error).error()) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  [[nodiscard]] T& value() & { return *checked(this); }
  [[nodiscard]] const T& value() const& { return *checked(this); }
  [[nodiscard]] T&& value() && { return std::move(*checked(this)); }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

  [[nodiscard]] E& error() & { return *checked_error(this); }
  [[nodiscard]] const E& error() const& { return *checked_error(this); }
  [[nodiscard]] E&& error() && { return std::move(*checked_error(this)); }

 private:
  template <typename Self>
  static auto* checked(Self* self) {
    CAIRN_CHECK(self->has_value(), "value() of a failed Result");
    return std::get_if<0>(&self->state_);
  }
  template <typename Self>
  static auto* checked_error(Self* self) {
    CAIRN_CHECK(!self->has_value(), "error() of a Result that has a value");
    return std::get_if<1>(&self->state_);
  }

  std::variant<T, E> state_;
};

// Success without a value: `return Status();`
template <typename E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;
  Result(Unexpected<E> error)  // NOLINT(google-explicit-constructor): as above
      : state_(std::in_place_index<1>, std::move(error).error()) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const E& error() const {
    CAIRN_CHECK(!has_value(), "error() of a Result that has a value");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<std::monostate, E> state_;
};

using Status = Result<void>;

}  // namespace cairn
