#include "cairn/tokens/keyed_keys.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <vector>

#include "cairn/base/byte_stream.h"
#include "cairn/hash/hmac.h"

namespace cairn::internal {

static_assert(std::endian::native == std::endian::little, "keys and tags are hashed as little-endian words");

namespace {

constexpr std::string_view kDomain = "cairn keys 1";

std::array<std::byte, CmacKey::kBytes> derive(const KeySecret& secret, std::string_view purpose,
                                              const Namespace& space) {
  std::vector<std::byte> info;
  ByteWriter out(info);
  out.text(purpose);
  out.text(to_string(space.scheme));
  out.text(space.tenant);
  out.text(space.model);
  const Digest derived = hkdf_sha256(secret.bytes(), std::as_bytes(std::span(kDomain)), info);
  std::array<std::byte, CmacKey::kBytes> key;
  std::copy_n(derived.bytes.begin(), key.size(), key.begin());
  return key;
}

}  // namespace

KeyedKeys::KeyedKeys(const KeySecret& secret, const Namespace& space, const CmacKernel& kernel)
    : leaf(derive(secret, "leaf", space), kernel),
      frames(derive(secret, "frames", space), kernel),
      chain(derive(secret, "chain", space), kernel),
      root(derive(secret, "root", space), kernel),
      digest(derive(secret, "digest", space), kernel) {}

// CMAC of (leaf, parent). Its first block does not depend on earlier keys, so only one encryption waits for the previous
// key.
void chain_keys(const CmacKey& chain, ChainLink& link, std::span<const AesBlock> leaves, BlockKey* keys) {
#if defined(__x86_64__)
  if (chain.kernel().has_instructions) {
    return chain_keys_with_aes_ni(chain, link, leaves, keys);
  }
#endif
  const Words mask = words_of(chain.whole());
  for (const AesBlock& leaf : leaves) {
    AesBlock tag = leaf;
    chain.encrypt({&tag, 1});
    const Words first = words_of(tag);
    const Words parent = words_of(link.parent);
    tag = block_of({first.first ^ parent.first ^ mask.first, first.second ^ parent.second ^ mask.second});
    chain.encrypt({&tag, 1});
    const BlockKey key = key_of(link.position, tag, link.parent_sequence_hash);
    *keys++ = key;
    link = {link.position + 1, block_of({key.high_word(), key.low_word()}), key.sequence_hash()};
  }
}

}  // namespace cairn::internal
