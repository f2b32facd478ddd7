// The checksum of a block. The CPU and the GPU kernel compute the same value, in any order and in parts.
//
// It is computed over the rows of the block (layout/block_layout.h), each padded with zeros to words of 8 bytes. Word j of row r
// has position p = r x words-per-row + j, whatever arrangement the row lies in. With
//     first(p)  = p x 0x9E3779B1 + 0x165667B1     second(p) = p x 0x85EBCA77 + 0x27D4EB2F   (mod 2^32)
// the sums of a block are, modulo 2^64,
//     products = sum of ((low 32 bits of w + first(p)) mod 2^32) x ((high 32 bits of w + second(p)) mod 2^32)
//     words    = sum of w
// and its checksum mixes both with the size of the block and with the 128-bit tag that the caller gave. The checksum is never
// 0: if the mix is 0, it is 1, so that 0 means that no checksum was computed.
//
// A flipped bit is always found, because `words` changes. Fragments that changed places, were shifted, zeroed or come from
// another block change `products`, which depends on the position of each word. A shorter block is found by its size, a block of
// another key by the tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

// Which block it is: 128 bits that the caller derives from its key.
struct BlockTag {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const BlockTag&, const BlockTag&) = default;
};

enum class Checksum : std::uint64_t {};
inline constexpr Checksum kNoChecksum{0};  // not computed

// The sums of a block or of a part of it. The sums of the parts add up to those of the whole.
struct BlockSums {
  std::uint64_t products = 0;
  std::uint64_t words = 0;

  BlockSums& operator+=(const BlockSums& other) {
    products += other.products;
    words += other.words;
    return *this;
  }
  friend bool operator==(const BlockSums&, const BlockSums&) = default;
};

inline constexpr std::uint32_t kFirstStep = 0x9E3779B1U;
inline constexpr std::uint32_t kFirstStart = 0x165667B1U;
inline constexpr std::uint32_t kSecondStep = 0x85EBCA77U;
inline constexpr std::uint32_t kSecondStart = 0x27D4EB2FU;

// The sums of contiguous words from position `first_word` on; the last word is padded with zeros.
[[nodiscard]] BlockSums sum_words(std::span<const std::byte> bytes, std::uint64_t first_word);
// The same, and copies the bytes. Source and destination do not overlap.
[[nodiscard]] BlockSums copy_and_sum(std::byte* to, std::span<const std::byte> from, std::uint64_t first_word);

[[nodiscard]] Checksum finish(const BlockSums& sums, std::uint64_t block_bytes, const BlockTag& tag);

}  // namespace cairn
