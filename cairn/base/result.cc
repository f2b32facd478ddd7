#include "cairn/base/result.h"

#include <cstdio>
#include <cstdlib>

namespace cairn {

namespace internal {

void abort_because(std::string_view message) {
  std::fprintf(stderr, "cairn: %.*s\n", static_cast<int>(message.size()), message.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kFailedPrecondition:
      return "failed_precondition";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kAlreadyExists:
      return "already_exists";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kOutOfRange:
      return "out_of_range";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kExpired:
      return "expired";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string Error::to_string() const { return std::string(cairn::to_string(code)) + ": " + message; }

}  // namespace cairn
