#include "cairn/hash/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

#include "cairn/base/check.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn {

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  static constexpr std::byte kEmpty{};  // OpenSSL takes an empty key, but not a null pointer
  Digest digest;
  const unsigned char* const made = HMAC(EVP_sha256(), key.empty() ? &kEmpty : key.data(), static_cast<int>(key.size()),
                                         reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                         reinterpret_cast<unsigned char*>(digest.bytes.data()), nullptr);
  CAIRN_CHECK(made != nullptr, "OpenSSL has HMAC-SHA256");
  return digest;
}

Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                   std::span<const std::byte> info) {
  const Digest extracted = hmac_sha256(salt, secret);
  std::vector<std::byte> message(info.begin(), info.end());
  message.push_back(std::byte{1});
  return hmac_sha256(extracted.bytes, message);
}

bool same_digest(const Digest& one, const Digest& other) { return internal::same_secret(one.bytes, other.bytes); }

}  // namespace cairn
