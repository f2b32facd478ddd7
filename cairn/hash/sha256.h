// Sha256: SHA-256 of bytes that come in parts. Internal.
//
// Thread safety: one for each thread, made at its first use and kept until the thread ends.
// Errors: aborts if OpenSSL has no SHA-256, which is a broken installation.
// Complexity: allocates nothing after the first use, but OpenSSL 3.0 allocates and frees a small object for each digest.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cairn/hash/sha256_digest.h"

struct evp_md_ctx_st;

namespace cairn::internal {

class Sha256 {
 public:
  [[nodiscard]] static Sha256& of_this_thread();

  void begin();
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] Digest finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };

  Sha256();

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace cairn::internal
