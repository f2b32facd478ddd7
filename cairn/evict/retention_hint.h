// RetentionHint: what an engine knows of blocks and a policy cannot: whether they will be wanted again, and when.
//
// A hint may be wrong. It shifts the order of eviction for a time and never holds a block; see hint_book.h.
#pragma once

#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

struct RetentionHint {
  enum class Kind : std::uint8_t {
    kNone,           // nothing is known: takes back what was said before
    kReturns,        // wanted again in about `in`: a session that waits for a tool, or for a person
    kSystemPrompt,   // many requests begin with these
    kWillNotReturn,  // the session is over
  };
  Kind kind = Kind::kNone;
  Duration in = Duration::zero();  // of kReturns
};

}  // namespace cairn
