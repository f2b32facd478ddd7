// The checksum of a block: one definition, computed alike by the CPU and by the GPU kernel, in any order and in pieces.
//
// Defined:  over the rows of the block (layout/kv_shape.h), each padded with zeros to words of 8 bytes; the word j of
//           row r has position p = r x words-a-row + j, whatever arrangement the row lies in. With
//               first(p)  = p x 0x9E3779B1 + 0x165667B1     second(p) = p x 0x85EBCA77 + 0x27D4EB2F   (mod 2^32)
//           a block's sums are, modulo 2^64,
//               products = sum of ((low 32 bits of w + first(p)) mod 2^32) x ((high 32 bits of w + second(p)) mod 2^32)
//               words    = sum of w
//           and its checksum mixes both with the bytes of the block and with the 128-bit tag the caller gave. It is never
//           0: where the mix is 0 the checksum is 1, so that 0 can say that no checksum was made.
// Catches:  a flipped bit, always: `words` changes. Fragments that changed places, were shifted, zeroed or come from
//           another block: `products` depends on where each word is. A shorter block: its bytes are mixed in. A block
//           of another key in this place: the tag is.
// Threads:  pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

// Whom a block belongs to: 128 bits that the caller makes of its key.
struct BlockTag {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const BlockTag&, const BlockTag&) = default;
};

enum class Checksum : std::uint64_t {};
inline constexpr Checksum kNoChecksum{0};  // none was made

// What has been added up of a block; sums of its parts add up to that of the whole.
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

// Adds up contiguous words from position `first_word` on; the last one is padded with zeros. At the speed of memory.
[[nodiscard]] BlockSums sum_words(std::span<const std::byte> bytes, std::uint64_t first_word);
// The same, and copies the bytes on the way; the two do not overlap.
[[nodiscard]] BlockSums copy_and_sum(std::byte* to, std::span<const std::byte> from, std::uint64_t first_word);

[[nodiscard]] Checksum finish(const BlockSums& sums, std::uint64_t block_bytes, const BlockTag& tag);

}  // namespace cairn
