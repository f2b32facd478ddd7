#include "cairn/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace cairn::internal {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "cairn: broken invariant at %s:%d: %.*s [%s]\n", file, line, static_cast<int>(message.size()),
               message.data(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace cairn::internal
