// KeyHasher: makes the keys of a request's blocks: holds a scheme, its secret keys, and the request's salt and adapter. It is
// made from a Namespace and a KeySecret.
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
// Scheme dynamo is XXH3 (hashes.h): an attacker that knows another request's salt and tokens can forge its keys.
// Schemes vllm and sglang make keys from the engine's digests (engine_key.h), not from tokens.
//
// Thread safety: plain values; copies of a KeyHasher share the expanded keys.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

namespace internal {
struct AesBlock;
struct KeyedKeys;
}  // namespace internal

enum class NamespaceId : std::uint64_t {};
[[nodiscard]] constexpr std::uint64_t value_of(NamespaceId id) { return static_cast<std::uint64_t>(id); }

// How the sequence hashes of keys are made; hashes of different schemes cannot be compared. Stored in files: only append.
// 0 was `native` before it was keyed, and must not be used again.
enum class KeyScheme : std::uint8_t {
  kVllm = 1,    // a keyed hash of vLLM's digests (engine_key.h)
  kSglang = 2,  // a keyed hash of SGLang's digests (engine_key.h)
  kRouter = 3,  // the 64-bit hashes of a router (engine_key.h): not protected against forgery
  kDynamo = 4,  // XXH3 of the tokens (hashes.h), for routers and simulations: not protected against forgery
  kNative = 5,  // a keyed hash of the tokens
};
inline constexpr KeyScheme kAllSchemes[] = {KeyScheme::kNative, KeyScheme::kDynamo, KeyScheme::kVllm,
                                            KeyScheme::kSglang, KeyScheme::kRouter};
// "native", "dynamo", "vllm", "sglang", "router"; "unknown" for other numbers, from a damaged file
[[nodiscard]] std::string_view to_string(KeyScheme scheme);
// Whether keys of the scheme are made with a secret.
[[nodiscard]] constexpr bool has_secret(KeyScheme scheme) {
  return scheme == KeyScheme::kNative || scheme == KeyScheme::kVllm || scheme == KeyScheme::kSglang;
}

// Separates blocks that have the same tokens. A block may be used for a request only if all fields agree.
struct Namespace {
  std::string tenant{};
  std::string model{};
  std::uint64_t weights_generation = 0;  // incremented when the weights change under the same model name
  std::string layout{};                  // of a block's bytes: the order of layers, K and V, heads
  std::string element_type{};            // "bf16", "fp8_e4m3"
  std::string shard{};                   // the part of the model that the bytes belong to: "tp0/2", or empty
  std::uint32_t block_size = 0;          // tokens per block
  KeyScheme scheme = KeyScheme::kNative;

  // A stable 64-bit hash of all fields: the first bytes of a SHA-256 over each field with its length in front, so that
  // different fields never hash alike. It is part of every key that leaves the process.
  [[nodiscard]] NamespaceId id() const;
};

// A key with its namespace, as it leaves the process.
struct QualifiedKey {
  static constexpr std::size_t kBytes = 24;

  NamespaceId ns{};
  BlockKey key;

  // The namespace, then the key, most significant byte first.
  [[nodiscard]] std::array<std::byte, kBytes> to_bytes() const;
  // kCorrupt for everything that to_bytes() could not have written.
  [[nodiscard]] static Result<QualifiedKey> from_bytes(std::span<const std::byte> bytes);

  friend bool operator==(const QualifiedKey&, const QualifiedKey&) = default;
  // By namespace, then as keys sort.
  friend auto operator<=>(const QualifiedKey&, const QualifiedKey&) = default;
};

// The 32 secret bytes that the keys of a deployment are made with. With the secret the key of any block can be computed;
// without it not a single one can be predicted. There is no function that prints a secret. Its bytes are overwritten in
// memory when it is destroyed.
class KeySecret {
 public:
  static constexpr std::size_t kBytes = 32;
  using Bytes = std::array<std::byte, kBytes>;

  explicit KeySecret(const Bytes& bytes) : bytes_(bytes) {}
  KeySecret(const KeySecret&) = default;
  KeySecret& operator=(const KeySecret&) = default;
  ~KeySecret();

  // From the system's random numbers.
  [[nodiscard]] static KeySecret random();
  // Errors: kInvalidArgument if the text is not 64 hexadecimal digits; the message never shows the text.
  [[nodiscard]] static Result<KeySecret> from_hex(std::string_view text);
  // Reads a file that contains the digits, and nothing else but white space around them.
  [[nodiscard]] static Result<KeySecret> from_file(const std::string& path);

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  // Compares in constant time.
  friend bool operator==(const KeySecret& one, const KeySecret& other);

 private:
  Bytes bytes_;
};

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

template <>
struct std::hash<cairn::QualifiedKey> {
  std::size_t operator()(const cairn::QualifiedKey& qualified) const noexcept {
    // An attacker cannot choose the namespace, and the key is mixed with a seed.
    return value_of(qualified.ns) ^ std::hash<cairn::BlockKey>()(qualified.key);
  }
};
