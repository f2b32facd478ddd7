#include "cairn/tokens/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "cairn/base/check.h"

namespace cairn::internal {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    CAIRN_CHECK(got > 0, "the system gives random bytes");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace cairn::internal
