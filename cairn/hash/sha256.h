// Sha256: hashes bytes given in pieces. Internal.
//
// Owner:    one for each thread, made on its first use and kept. After that nothing is allocated here; OpenSSL 3.0
//           still makes a small object of its own, and frees it, for each digest.
// Threads:  one thread.
// Aborts:   OpenSSL without SHA-256 is a broken installation.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cairn/hash/sha256_digest.h"

struct evp_md_ctx_st;
struct evp_md_st;

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
    void operator()(evp_md_st* algorithm) const;
  };

  Sha256();

  std::unique_ptr<evp_md_st, Free> algorithm_;
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace cairn::internal
