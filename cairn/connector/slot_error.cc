#include "cairn/connector/slot_error.h"

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

Error error_of(const SlotError::NotFound& kind) {
  return {ErrorCode::kNotFound, str_cat("request ", kind.request.to_string(), " has no slot; create one")};
}
Error error_of(const SlotError::InvalidState& kind) {
  return {ErrorCode::kFailedPrecondition,
          str_cat("a slot cannot go from ", kind.from.to_string(), " to ", kind.to.to_string())};
}
Error error_of(const SlotError::InvalidOperation& kind) { return kind.error; }
Error error_of(const SlotError::PoolError& kind) { return kind.error; }

}  // namespace

SlotError::SlotError(Kind kind) : kind_(std::move(kind)) {}
SlotError::SlotError(const SlotError&) = default;
SlotError& SlotError::operator=(const SlotError&) = default;
SlotError::SlotError(SlotError&&) noexcept = default;
SlotError& SlotError::operator=(SlotError&&) noexcept = default;
SlotError::~SlotError() = default;

Error SlotError::to_error() const {
  return std::visit([](const auto& kind) { return error_of(kind); }, kind_);
}

}  // namespace cairn
