#include "cairn/tokens/hmac.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cairn/tokens/sha256.h"

namespace cairn {
namespace {

using internal::Sha256;
using KeyBlock = std::array<std::byte, 64>;  // SHA-256 works on blocks of so many bytes

Digest hash_after(const KeyBlock& key, std::byte pad, std::span<const std::byte> message) {
  KeyBlock padded = key;
  for (std::byte& byte : padded) byte ^= pad;
  Sha256& hash = Sha256::of_this_thread();
  hash.begin();
  hash.add(padded);
  hash.add(message);
  return hash.finish();
}

// A key that is longer than a block stands for its digest.
KeyBlock key_block(std::span<const std::byte> key) {
  KeyBlock block{};
  if (key.size() <= block.size()) {
    std::copy(key.begin(), key.end(), block.begin());
    return block;
  }
  Sha256& hash = Sha256::of_this_thread();
  hash.begin();
  hash.add(key);
  const Digest digest = hash.finish();
  std::copy(digest.bytes.begin(), digest.bytes.end(), block.begin());
  return block;
}

}  // namespace

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  const KeyBlock block = key_block(key);
  const Digest inner = hash_after(block, std::byte{0x36}, message);
  return hash_after(block, std::byte{0x5c}, inner.bytes);
}

Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                   std::span<const std::byte> info) {
  const Digest extracted = hmac_sha256(salt, secret);
  std::vector<std::byte> message(info.begin(), info.end());
  message.push_back(std::byte{1});
  return hmac_sha256(extracted.bytes, message);
}

bool same_digest(const Digest& one, const Digest& other) {
  std::byte differences{};
  for (std::size_t i = 0; i < one.bytes.size(); ++i) differences |= one.bytes[i] ^ other.bytes[i];
  return differences == std::byte{};
}

}  // namespace cairn
