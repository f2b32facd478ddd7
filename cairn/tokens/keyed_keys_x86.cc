// Chains of keys with AES instructions. The time is bounded by the one encryption that waits for the previous key; making
// the key from its result in vector registers saves a third of the time.
#if defined(__x86_64__)

#include <algorithm>

#include "cairn/hash/aes_ni.h"
#include "cairn/tokens/keyed_keys.h"

namespace cairn::internal {
namespace {

constexpr std::size_t kGroup = 4;

// The first encryption of each leaf, before its parent is added.
template <std::size_t kLanes>
CAIRN_AES_NI_INLINE void encrypt_leaves(const AesRounds& rounds, __m128i mask, const AesBlock* leaves, __m128i* out) {
  __m128i lanes[kLanes];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    lanes[i] = load(&leaves[i]);
  }
  encrypt(rounds, lanes);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    out[i] = _mm_xor_si128(lanes[i], mask);
  }
}

// Keys at positions from 1 on that leave kBits for the parent's fragment: up to kLast.
template <int kBits, std::uint32_t kLast>
CAIRN_AES_NI_INLINE std::size_t chain_positions(const AesRounds& rounds, ChainLink& link, const __m128i* leaves,
                                                std::size_t count, BlockKey* keys) {
  count = std::min<std::size_t>(count, kLast + 1 - link.position);
  constexpr std::uint64_t kMode = (54 - kBits) / 8;
  const __m128i fragment_mask = _mm_set_epi64x(static_cast<long long>((std::uint64_t{1} << kBits) - 1), 0);
  const __m128i one = _mm_set_epi64x(0, static_cast<long long>(std::uint64_t{1} << kBits));
  __m128i place = _mm_set_epi64x(
      0, static_cast<long long>((kMode << 62) | (std::uint64_t{link.position} << kBits)));  // mode and position
  __m128i parent = load(&link.parent);
  __m128i sequence = _mm_set1_epi64x(static_cast<long long>(value_of(link.parent_sequence_hash)));  // in both words
  for (std::size_t i = 0; i < count; ++i) {
    // The part of the key that does not depend on this block: mode, position and parent fragment.
    const __m128i known = _mm_or_si128(place, _mm_and_si128(sequence, fragment_mask));
    __m128i tag[1] = {_mm_xor_si128(leaves[i], parent)};
    encrypt(rounds, tag);
    sequence = _mm_unpacklo_epi64(tag[0], tag[0]);
    const __m128i high = _mm_srli_epi64(sequence, 64 - kBits);
    const __m128i low = _mm_slli_epi64(sequence, kBits);
    parent = _mm_or_si128(_mm_blend_epi16(high, low, 0xF0), known);
    store(&keys[i], parent);
    place = _mm_add_epi64(place, one);
  }
  link.position += static_cast<std::uint32_t>(count);
  store(&link.parent, parent);
  link.parent_sequence_hash = SequenceHash{static_cast<std::uint64_t>(_mm_cvtsi128_si64(sequence))};
  return count;
}

CAIRN_AES_NI_INLINE void chain_root(const AesRounds& rounds, ChainLink& link, __m128i leaf, BlockKey* key) {
  __m128i block[1] = {_mm_xor_si128(leaf, load(&link.parent))};
  encrypt(rounds, block);
  AesBlock tag;
  store(&tag, block[0]);
  *key = key_of(0, tag, SequenceHash{0});
  link = {1, block_of({key->high_word(), key->low_word()}), key->sequence_hash()};
}

}  // namespace

CAIRN_AES_NI void chain_keys_with_aes_ni(const CmacKey& chain, ChainLink& link, std::span<const AesBlock> leaves,
                                         BlockKey* keys) {
  const AesRounds rounds = rounds_of(chain);
  const __m128i mask = load(&chain.whole());
  while (!leaves.empty()) {
    const std::size_t count = std::min(leaves.size(), kGroup);
    __m128i group[kGroup];
    if (count == kGroup) {
      encrypt_leaves<kGroup>(rounds, mask, leaves.data(), group);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        encrypt_leaves<1>(rounds, mask, leaves.data() + i, group + i);
      }
    }
    std::size_t done = 0;
    if (link.position == 0) {
      chain_root(rounds, link, group[0], keys);
      done = 1;
    }
    while (done < count) {
      if (link.position < 1U << 8) {
        done += chain_positions<54, (1U << 8) - 1>(rounds, link, group + done, count - done, keys + done);
      } else if (link.position < 1U << 16) {
        done += chain_positions<46, (1U << 16) - 1>(rounds, link, group + done, count - done, keys + done);
      } else {
        done += chain_positions<38, BlockKey::kMaxPosition>(rounds, link, group + done, count - done, keys + done);
      }
    }
    leaves = leaves.subspan(count);
    keys += count;
  }
}

}  // namespace cairn::internal

#endif
