// CallbackScope: marks that this thread calls a callback while it holds a mutex. A callback that takes the same mutex would
// wait for itself forever; with the mark it aborts with a message instead.
//
// Thread safety: a scope belongs to the thread that made it. Scopes nest.
// Complexity: two stores to thread-local memory. A mutex looks at the scopes only before it would wait.
#pragma once

#include "cairn/base/mutex.h"

namespace cairn {

class CallbackScope {
 public:
  // `what` names the callback in the message: a literal.
  CallbackScope(const Mutex& held, const char* what) : held_(held), what_(what), outer_(innermost_) {
    innermost_ = this;
  }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
  ~CallbackScope() { innermost_ = outer_; }

  // Aborts with the name of the callback if this thread is in one that was called under the mutex.
  static void check_not_under(const Mutex& mutex);

 private:
  const Mutex& held_;
  const char* const what_;
  const CallbackScope* const outer_;

  // Initial-exec: one instruction, where a library of its own would call a function.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local const CallbackScope* innermost_ = nullptr;
};

}  // namespace cairn
