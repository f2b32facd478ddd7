// refuse(): the error of a call that a slot or the scheduler refuses.
#pragma once

#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"

namespace cairn {

// The message is the pieces, as in str_cat().
template <typename... Pieces>
[[nodiscard, gnu::cold, gnu::noinline]] Unexpected<Error> refuse(ErrorCode code, const Pieces&... pieces) {
  return fail(code, str_cat(pieces...));
}

}  // namespace cairn
