// AES-128 with the AES instructions of x86-64. The attribute of the functions makes the compiler use these instructions;
// call them only if has_aes_ni(). Internal.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

#include "cairn/hash/cmac.h"

#define CAIRN_AES_NI [[gnu::target("aes,sse4.1")]]
#define CAIRN_AES_NI_INLINE [[gnu::target("aes,sse4.1"), gnu::always_inline]] inline

namespace cairn::internal {

CAIRN_AES_NI_INLINE __m128i load(const void* bytes) { return _mm_loadu_si128(static_cast<const __m128i*>(bytes)); }
CAIRN_AES_NI_INLINE void store(void* bytes, __m128i block) { _mm_storeu_si128(static_cast<__m128i*>(bytes), block); }

// The round keys, in registers if the compiler has enough.
struct AesRounds {
  __m128i keys[11];
};

CAIRN_AES_NI_INLINE AesRounds rounds_of(const CmacKey& key) {
  AesRounds rounds;
  for (int i = 0; i < 11; ++i) {
    rounds.keys[i] = load(&key.rounds()[static_cast<std::size_t>(i)]);
  }
  return rounds;
}

// Encrypts the blocks interleaved: the processor starts the next one while the previous one is still in its pipeline.
template <std::size_t kLanes>
CAIRN_AES_NI_INLINE void encrypt(const AesRounds& rounds, __m128i (&blocks)[kLanes]) {
#pragma GCC unroll 16
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    blocks[lane] = _mm_xor_si128(blocks[lane], rounds.keys[0]);
  }
#pragma GCC unroll 16
  for (int round = 1; round < 10; ++round) {
#pragma GCC unroll 16
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      blocks[lane] = _mm_aesenc_si128(blocks[lane], rounds.keys[round]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    blocks[lane] = _mm_aesenclast_si128(blocks[lane], rounds.keys[10]);
  }
}

}  // namespace cairn::internal

#endif
