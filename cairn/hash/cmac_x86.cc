// AES-128-CMAC with AES instructions, several messages at a time.
#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "cairn/hash/aes_ni.h"

namespace cairn::internal {
namespace {

template <int kConstant>
CAIRN_AES_NI_INLINE __m128i next_round(__m128i key) {
  const __m128i mixed = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xFF);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, mixed);
}

CAIRN_AES_NI void expand_key(std::array<AesBlock, 11>& rounds) {
  __m128i key = load(&rounds[0]);
  store(&rounds[1], key = next_round<0x01>(key));
  store(&rounds[2], key = next_round<0x02>(key));
  store(&rounds[3], key = next_round<0x04>(key));
  store(&rounds[4], key = next_round<0x08>(key));
  store(&rounds[5], key = next_round<0x10>(key));
  store(&rounds[6], key = next_round<0x20>(key));
  store(&rounds[7], key = next_round<0x40>(key));
  store(&rounds[8], key = next_round<0x80>(key));
  store(&rounds[9], key = next_round<0x1B>(key));
  store(&rounds[10], next_round<0x36>(key));
}

CAIRN_AES_NI void encrypt_blocks(const CmacKey& key, std::span<AesBlock> blocks) {
  const AesRounds rounds = rounds_of(key);
  for (AesBlock& block : blocks) {
    __m128i lane[1] = {load(&block)};
    encrypt(rounds, lane);
    store(&block, lane[0]);
  }
}

// The last block of a message of `size` bytes, padded and masked.
CAIRN_AES_NI_INLINE __m128i last_block(const CmacKey& key, const std::byte* message, std::size_t size) {
  const std::size_t begin = size == 0 ? 0 : (size - 1) / 16 * 16;
  if (size - begin == 16) {
    return _mm_xor_si128(load(message + begin), load(&key.whole()));
  }
  AesBlock padded;
  if (size > begin) {
    std::memcpy(&padded, message + begin, size - begin);
  }
  padded.bytes[size - begin] = std::byte{0x80};
  return _mm_xor_si128(load(&padded), load(&key.part()));
}

template <std::size_t kLanes>
CAIRN_AES_NI_INLINE void mac_lanes(const CmacKey& key, const AesRounds& rounds, const std::byte* messages,
                                   std::size_t size, AesBlock* out) {
  __m128i lanes[kLanes];
  for (__m128i& lane : lanes) {
    lane = _mm_setzero_si128();
  }
  for (std::size_t at = 0; at + 16 < size; at += 16) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes[i] = _mm_xor_si128(lanes[i], load(messages + i * size + at));
    }
    encrypt(rounds, lanes);
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    lanes[i] = _mm_xor_si128(lanes[i], last_block(key, messages + i * size, size));
  }
  encrypt(rounds, lanes);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    store(&out[i], lanes[i]);
  }
}

CAIRN_AES_NI void macs(const CmacKey& key, const std::byte* messages, std::size_t size, std::span<AesBlock> out) {
  const AesRounds rounds = rounds_of(key);
  std::size_t done = 0;
  for (; done + 8 <= out.size(); done += 8) {
    mac_lanes<8>(key, rounds, messages + done * size, size, out.data() + done);
  }
  for (; done + 4 <= out.size(); done += 4) {
    mac_lanes<4>(key, rounds, messages + done * size, size, out.data() + done);
  }
  for (; done < out.size(); ++done) {
    mac_lanes<1>(key, rounds, messages + done * size, size, out.data() + done);
  }
}

}  // namespace

bool has_aes_ni() { return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1"); }

const CmacKernel kAesNiKernel = {
    .name = "aes-ni", .has_instructions = true, .expand = expand_key, .encrypt = encrypt_blocks, .macs = macs};

}  // namespace cairn::internal

#endif
