#include "cairn/hash/sha256.h"

#include <openssl/evp.h>

#include "cairn/base/check.h"

namespace cairn::internal {

namespace {

// Fetched once for all threads, because fetching takes locks and searches the providers. Never freed: a thread that ends while the
// process exits would otherwise free it beside OpenSSL's own cleanup.
const EVP_MD* fetched_sha256() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CAIRN_CHECK(fetched_sha256() != nullptr && context_ != nullptr, "OpenSSL has SHA-256");
}

Sha256& Sha256::of_this_thread() {
  static thread_local Sha256 hasher;
  return hasher;
}

void Sha256::begin() {
  CAIRN_CHECK(EVP_DigestInit_ex(context_.get(), fetched_sha256(), nullptr) == 1, "OpenSSL begins a SHA-256 digest");
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
