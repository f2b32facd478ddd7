#include "cairn/hash/sha256.h"

#include <openssl/evp.h>

#include "cairn/base/check.h"

namespace cairn::internal {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }
void Sha256::Free::operator()(evp_md_st* algorithm) const { EVP_MD_free(algorithm); }

// Fetched once: fetching takes locks and searches the providers.
Sha256::Sha256() : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
  CAIRN_CHECK(algorithm_ != nullptr && context_ != nullptr, "OpenSSL has SHA-256");
}

Sha256& Sha256::of_this_thread() {
  static thread_local Sha256 hasher;
  return hasher;
}

void Sha256::begin() {
  CAIRN_CHECK(EVP_DigestInit_ex(context_.get(), algorithm_.get(), nullptr) == 1, "OpenSSL begins a SHA-256 digest");
}

void Sha256::add(std::span<const std::byte> bytes) {
  CAIRN_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "OpenSSL continues a SHA-256 digest");
}

Digest Sha256::finish() {
  Digest digest;
  CAIRN_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.bytes.data()), nullptr) == 1,
              "OpenSSL ends a SHA-256 digest");
  return digest;
}

}  // namespace cairn::internal
