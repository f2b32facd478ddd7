#include "cairn/base/own_thread.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>

namespace cairn {

namespace {

constinit thread_local bool is_own = false;

}  // namespace

namespace internal {

void own_thread_failed(const char* name, const char* what) noexcept {
  std::fprintf(stderr,
               "cairn: thread %s was ended by an exception: %s; its change is incomplete and cannot be undone, so the "
               "process ends here\n",
               name, what);
  std::fflush(stderr);
  std::abort();
}

void begin_own_thread(const char* name) noexcept {
  is_own = true;
  pthread_setname_np(pthread_self(), name);
}

}  // namespace internal

bool is_own_thread() noexcept { return is_own; }

}  // namespace cairn
