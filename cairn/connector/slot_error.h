// SlotError: why an operation on a slot did nothing. Whatever failed has changed nothing.
//
// Does:     four kinds, each with what there is to know; to_error() is the same for callers who deal in Error:
//           NotFound kNotFound, InvalidState kFailedPrecondition, the other two the error that they hold.
// Threads:  a plain value.
#pragma once

#include <utility>
#include <variant>

#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot_state.h"

namespace cairn {

class SlotError {
 public:
  // No slot of that request.
  struct NotFound {
    RequestId request;
  };
  // A step that kSlotTransitions does not have.
  struct InvalidState {
    SlotState from;
    SlotState to;
  };
  // The step would be legal, but not with this argument, or not yet.
  struct InvalidOperation {
    Error error;
  };
  // What a pool or tier answered, passed on.
  struct PoolError {
    Error error;
  };
  using Kind = std::variant<NotFound, InvalidState, InvalidOperation, PoolError>;

  // Cold and not inlined, as all that makes errors: every step of a request may fail, and few do.
  [[gnu::cold]] explicit SlotError(Kind kind);
  [[gnu::cold]] SlotError(const SlotError&);
  [[gnu::cold]] SlotError& operator=(const SlotError&);
  [[gnu::cold]] SlotError(SlotError&&) noexcept;
  [[gnu::cold]] SlotError& operator=(SlotError&&) noexcept;
  [[gnu::cold]] ~SlotError();

  [[nodiscard]] const Kind& kind() const { return kind_; }
  template <typename K>
  [[nodiscard]] const K* get_if() const {
    return std::get_if<K>(&kind_);
  }
  [[nodiscard]] Error to_error() const;

 private:
  Kind kind_;
};

template <typename T>
using SlotResult = Result<T, SlotError>;
using SlotStatus = SlotResult<void>;

[[nodiscard, gnu::cold, gnu::noinline]] inline Unexpected<SlotError> slot_fail(SlotError::Kind kind) {
  return Unexpected(SlotError(std::move(kind)));
}
[[nodiscard, gnu::cold, gnu::noinline]] inline Unexpected<SlotError> invalid_operation(Error&& error) {
  return slot_fail(SlotError::InvalidOperation{std::move(error)});
}
// The message is the pieces, as in str_cat().
template <typename... Pieces>
[[nodiscard, gnu::cold, gnu::noinline]] Unexpected<SlotError> invalid_operation(ErrorCode code,
                                                                                const Pieces&... pieces) {
  return invalid_operation(Error{code, str_cat(pieces...)});
}

}  // namespace cairn
