#include "cairn/hash/secret_bytes.h"

#include <openssl/crypto.h>
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

bool same_secret(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

void erase_secret(std::span<std::byte> bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

}  // namespace cairn::internal
