// KeyHasher: makes the keys of a request's blocks: holds a scheme, its secret keys, and the request's salt and adapter.
//
// Scheme native, the default, is a keyed hash: AES-128-CMAC (RFC 4493) with keys that HKDF-SHA256 derives from the
// deployment's secret, the scheme, the tenant and the model.
//   leaf     CMAC of the block's tokens (little-endian u32); of its frames (hashes.h), with a key of their own, if a
//            multimodal run touches the block
//   root     CMAC of (length of the salt, salt, length of the adapter's name, name), lengths as little-endian u64; its
//            highest two bits are set, as in no key
//   out      CMAC of (leaf, parent), where the parent is the key before, as two little-endian words, or the root
// The sequence hash of a key is the first 8 bytes of `out`. At position 0 the key holds 54 bits of the next 8 too. The
// block hash is the first 8 bytes of the leaf. Without the secret nobody can compute a key, so nobody can find tokens whose
// key is that of another user's block. docs/decisions/0013-keyed-keys.md says how many bits a forgery must match.
// Scheme dynamo is XXH3 (hashes.h): somebody who knows another request's salt and tokens can forge its keys.
// Schemes vllm and sglang make keys from the engine's digests (vllm_key.h, sglang_key.h), not from tokens.
//
// Thread safety: a value that never changes; copies share the expanded keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_secret.h"
#include "cairn/tokens/namespace.h"

namespace cairn {

namespace internal {
struct AesBlock;
struct KeyedKeys;
}  // namespace internal

// Separates requests that have the same tokens. An empty text counts as absent.
struct RequestSalt {
  std::string_view salt{};
  std::string_view lora_name{};
};

class KeyHasher {
 public:
  // The hasher of space.scheme for requests without salt and adapter. If the scheme has a secret and none is given, it uses
  // a random one.
  [[nodiscard]] static KeyHasher make(const Namespace& space, const std::optional<KeySecret>& secret = std::nullopt);
  [[nodiscard]] static KeyHasher dynamo(SaltHash salt = kNoSalt);
  // Scheme native, with a random secret that lasts until the process ends.
  [[nodiscard]] static const KeyHasher& of_process();

  // The same hasher with this salt and adapter instead of its own.
  [[nodiscard]] KeyHasher with(const RequestSalt& request) const;

  [[nodiscard]] KeyScheme scheme() const { return scheme_; }
  // kFailedPrecondition if keys of this scheme are not made from tokens.
  [[nodiscard]] Status check_hashes_tokens() const;

  // For the functions that hash. keyed() is null for schemes without a secret.
  [[nodiscard]] const internal::KeyedKeys* keyed() const { return keyed_.get(); }
  [[nodiscard]] internal::AesBlock root() const;
  [[nodiscard]] SaltHash salt() const { return SaltHash{root_[0]}; }

 private:
  explicit KeyHasher(KeyScheme scheme) : scheme_(scheme) {}

  KeyScheme scheme_;
  std::uint64_t root_[2] = {};  // keyed: the root; dynamo: the salt hash
  std::shared_ptr<const internal::KeyedKeys> keyed_;
};

}  // namespace cairn
