// SlotError: why an operation on a slot did nothing. Whatever failed has changed nothing.
//
// Does:     four kinds, each with what there is to know; to_error() is the same for callers who deal in Error:
//           NotFound kNotFound, InvalidState kFailedPrecondition, the other two the error that they hold.
// Threads:  a plain value.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "cairn/base/result.h"
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

  explicit SlotError(Kind kind) : kind_(std::move(kind)) {}

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

[[nodiscard]] inline Unexpected<SlotError> slot_fail(SlotError::Kind kind) {
  return Unexpected(SlotError(std::move(kind)));
}
[[nodiscard]] inline Unexpected<SlotError> invalid_operation(ErrorCode code, std::string message) {
  return slot_fail(SlotError::InvalidOperation{Error{code, std::move(message)}});
}

}  // namespace cairn
