// Result<T, E>: the value of a fallible operation, or its error. The names are those of std::expected (C++23).
//
// Every function that can fail returns a Result. Absence that is no failure is a std::optional, and a broken invariant of
// our own is a CAIRN_CHECK. Callers pass errors on with CAIRN_TRY and CAIRN_TRY_ASSIGN:
//
//   CAIRN_TRY(file.flush());                                   // returns the error if flush() failed
//   CAIRN_TRY_ASSIGN(const Superblock superblock, read(path)); // else `superblock` is the value
//
// Errors: value() of a failed Result and error() of a good one abort; the first prints the error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace cairn {

enum class ErrorCode : unsigned char {
  kInvalidArgument,     // the caller's input is wrong, whatever the state: fix the call
  kFailedPrecondition,  // the input is fine but the object is not in a state for it
  kNotFound,            // what was named does not exist
  kAlreadyExists,       // what was to be made exists
  kExhausted,           // a capacity, quota or budget is used up: retry after something is released
  kOutOfRange,          // a position, index or number beyond what the format or object can hold
  kCorrupt,             // bytes from outside do not decode to anything we wrote
  kUnavailable,         // a device, driver or system facility is missing: the message says what to install or change
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

// Wraps an error that becomes a Result: `return Unexpected(Error{...});`
template <typename E>
class Unexpected {
 public:
  explicit Unexpected(E error) : error_(std::move(error)) {}
  [[nodiscard]] E&& error() && { return std::move(error_); }

 private:
  E error_;
};

namespace internal {

// For misuse of this library's own types, such as value() of a failed Result.
[[noreturn]] void abort_because(std::string_view message);

// Aborts; prints the error if it is an Error.
template <typename E>
[[noreturn, gnu::cold, gnu::noinline]] void value_of_failed(const E& error) {
  if constexpr (requires { std::string(error.to_string()); }) {
    abort_because("value() of a failed Result: " + error.to_string());
  } else {
    abort_because("value() of a failed Result");
  }
}

}  // namespace internal

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
    if (!self->has_value()) [[unlikely]] {
      internal::value_of_failed(*std::get_if<1>(&self->state_));
    }
    return std::get_if<0>(&self->state_);
  }
  template <typename Self>
  static auto* checked_error(Self* self) {
    if (self->has_value()) [[unlikely]] {
      internal::abort_because("error() of a Result that has a value");
    }
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
      : error_(std::move(error).error()) {}

  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] E& error() & { return *checked_error(this); }
  [[nodiscard]] const E& error() const& { return *checked_error(this); }
  [[nodiscard]] E&& error() && { return std::move(*checked_error(this)); }

 private:
  template <typename Self>
  static auto* checked_error(Self* self) {
    if (self->has_value()) [[unlikely]] {
      internal::abort_because("error() of a Result that has a value");
    }
    return &*self->error_;
  }

  // Not a variant: most results are good, and destroying an empty optional takes one comparison and no call.
  std::optional<E> error_;
};

using Status = Result<void>;

}  // namespace cairn

#define CAIRN_TRY_NAME_OF(counter) cairn_try_##counter
#define CAIRN_TRY_NAME(counter) CAIRN_TRY_NAME_OF(counter)
#define CAIRN_TRY_IN(name, ...)          \
  if (auto name = (__VA_ARGS__); name) { \
  } else                                 \
    return ::cairn::Unexpected(std::move(name).error())
#define CAIRN_TRY_ASSIGN_IN(name, target, ...)                    \
  auto name = (__VA_ARGS__);                                      \
  if (!name) return ::cairn::Unexpected(std::move(name).error()); \
  target = *std::move(name)

// Returns the error of the Result to the caller, if it failed.
#define CAIRN_TRY(...) CAIRN_TRY_IN(CAIRN_TRY_NAME(__COUNTER__), __VA_ARGS__)
// The same; if it succeeded, `target` (a declaration or an lvalue) takes the value. Several statements: not the body of an
// `if` without braces.
#define CAIRN_TRY_ASSIGN(target, ...) CAIRN_TRY_ASSIGN_IN(CAIRN_TRY_NAME(__COUNTER__), target, __VA_ARGS__)
