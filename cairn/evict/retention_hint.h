// RetentionHint: what an engine knows of blocks and a policy cannot know: whether and when they are needed again.
//
// A hint may be wrong. It shifts the order of eviction for a time and pins nothing; see hint_book.h.
#pragma once

#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

struct RetentionHint {
  enum class Kind : std::uint8_t {
    kNone,           // nothing is known: takes back earlier hints
    kReturns,        // needed again in about `in`: the session waits for a tool or a person
    kSystemPrompt,   // many requests start with these blocks
    kWillNotReturn,  // the session has ended
  };
  Kind kind = Kind::kNone;
  Duration in = Duration::zero();  // for kReturns
};

}  // namespace cairn
