// BlockKey: identifies a block everywhere in Cairn. A 128-bit positional lineage hash: it holds the position of the block in
// its sequence, the hash of all tokens up to its end, and a part of the parent's hash, so that the tree of blocks can be
// rebuilt from keys alone.
//
// Layout, from the most significant bit: mode (2 bits), position (P), sequence hash (64), parent fragment (R). Mode 0 has
// P 8 and R 54, mode 1 P 16 and R 46, mode 2 P 24 and R 38; a key has the smallest mode that holds its position. The parent
// fragment is the low R bits of the parent's sequence hash. A block at position 0 has no parent: keyed schemes store 54
// more bits of the block's own hash there, other schemes 0.
//
// KeySeed mixes keys for tables.
//
// Thread safety: plain values; a key has 16 bytes.
// Errors: make() refuses a position beyond 24 bits; from_bytes() and parse() refuse everything that make() could not have
// made.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

class BlockKey {
 public:
  static constexpr std::uint32_t kMaxPosition = (1U << 24) - 1;
  // A child's key holds at least this many low bits of the parent's sequence hash, whatever its position.
  static constexpr std::uint32_t kMinFragmentBits = 38;

  // Not the key of any block in use: position 0, sequence hash 0.
  constexpr BlockKey() = default;

  [[nodiscard]] static Result<BlockKey> root(SequenceHash current) { return make(0, current, SequenceHash{0}); }
  // The key of position 0 with a hash of more than 64 bits: the low 54 bits of `more` are kept.
  [[nodiscard]] static constexpr BlockKey wide_root(SequenceHash current, std::uint64_t more) {
    BlockKey key = make_checked(0, current, SequenceHash{0});
    key.lo_ |= more & low_bits(54);
    return key;
  }
  // `parent` is ignored at position 0.
  [[nodiscard]] static Result<BlockKey> make(std::uint64_t position, SequenceHash current, SequenceHash parent);
  // The same without the check. Requires: position <= kMaxPosition.
  [[nodiscard]] static constexpr BlockKey make_checked(std::uint32_t position, SequenceHash current,
                                                       SequenceHash parent) {
    const Mode mode = mode_of(position);
    const std::uint64_t seq = value_of(current);
    const std::uint64_t fragment = position == 0 ? 0 : value_of(parent) & low_bits(mode.fragment_bits);
    return BlockKey((std::uint64_t{mode.number} << 62) | (std::uint64_t{position} << mode.fragment_bits) |
                        (seq >> (64 - mode.fragment_bits)),
                    (seq << mode.fragment_bits) | fragment);
  }
  // The key of the next block of the same sequence.
  [[nodiscard]] Result<BlockKey> extend(BlockHash child) const;

  [[nodiscard]] constexpr std::uint32_t position() const {
    return by_mode<std::uint32_t>(
        [this]<std::uint32_t kBits>() { return static_cast<std::uint32_t>((hi_ & low_bits(62)) >> kBits); });
  }
  [[nodiscard]] constexpr SequenceHash sequence_hash() const {
    return by_mode<SequenceHash>(
        [this]<std::uint32_t kBits>() { return SequenceHash{(hi_ << (64 - kBits)) | (lo_ >> kBits)}; });
  }
  // The low bits of the parent's sequence hash (0 at position 0), and how many bits this key has for them.
  [[nodiscard]] constexpr std::uint64_t parent_fragment() const {
    return position() == 0 ? 0 : lo_ & low_bits(fragment_bits());
  }
  [[nodiscard]] constexpr std::uint32_t fragment_bits() const {
    return by_mode<std::uint32_t>([]<std::uint32_t kBits>() { return kBits; });
  }
  // The parent fragment of a child's key.
  [[nodiscard]] constexpr std::uint64_t fragment_for_child() const {
    return value_of(sequence_hash()) & low_bits(mode_of(position() + 1).fragment_bits);
  }
  [[nodiscard]] constexpr bool is_parent_of(const BlockKey& child) const {
    return child.by_mode<bool>([this, &child]<std::uint32_t kBits>() {
      return child.position() == position() + 1 && ((child.lo_ ^ value_of(sequence_hash())) & low_bits(kBits)) == 0;
    });
  }

  [[nodiscard]] constexpr std::uint64_t high_word() const { return hi_; }
  [[nodiscard]] constexpr std::uint64_t low_word() const { return lo_; }

  // 16 bytes, most significant first, as keys are sent and stored.
  [[nodiscard]] std::array<std::byte, 16> to_bytes() const;
  [[nodiscard]] static Result<BlockKey> from_bytes(std::span<const std::byte> bytes);
  // "position:base58(sequence hash)[:base58(parent fragment)]", each hash as 8 big-endian bytes. At position 0 the last
  // part has the additional bits of a wide root, if they are not 0.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static Result<BlockKey> parse(std::string_view text);

  friend constexpr bool operator==(const BlockKey&, const BlockKey&) = default;
  // By position, then sequence hash: parents sort before children.
  friend constexpr std::strong_ordering operator<=>(const BlockKey& a, const BlockKey& b) {
    if (const auto c = a.position() <=> b.position(); c != 0) return c;
    if (const auto c = value_of(a.sequence_hash()) <=> value_of(b.sequence_hash()); c != 0) return c;
    return a.lo_ <=> b.lo_;
  }

 private:
  struct Mode {
    std::uint32_t number;
    std::uint32_t fragment_bits;
  };

  constexpr BlockKey(std::uint64_t hi, std::uint64_t lo) : hi_(hi), lo_(lo) {}
  // Calls `read` with the number of fragment bits as a constant, because shifts by constants are faster.
  template <typename Value, typename Read>
  [[nodiscard]] constexpr Value by_mode(Read read) const {
    const std::uint64_t mode = hi_ >> 62;
    if (mode == 0) [[likely]] {
      return read.template operator()<54>();
    }
    return mode == 1 ? read.template operator()<46>() : read.template operator()<38>();
  }
  static constexpr std::uint64_t low_bits(std::uint32_t count) { return (std::uint64_t{1} << count) - 1; }
  static constexpr Mode mode_of(std::uint32_t position) {
    const std::uint32_t number = position < (1U << 8) ? 0 : position < (1U << 16) ? 1 : 2;
    return {number, 54 - 8 * number};
  }

  std::uint64_t hi_ = 0;
  std::uint64_t lo_ = 0;
};

static_assert(sizeof(BlockKey) == 16);

// Mixes keys for hash tables and sketches. Without the seed nobody can choose keys that fall into one bucket.
//
// Exact tables use the seed of the process, because it only changes where an entry lies. Sketches (evict/), whose answers
// depend on the hash, are given a seed, so that a simulation can repeat a run.
struct KeySeed {
  // Both are odd. The defaults are public: use them in simulations and tests only.
  std::uint64_t first = 1;
  std::uint64_t second = 0x9E3779B97F4A7C15U;

  // A random seed that stays the same until the process ends.
  [[nodiscard]] static const KeySeed& of_process() {
    static const KeySeed kSeed = random();
    return kSeed;
  }
  [[nodiscard]] static KeySeed random();
  // Always the same seed for the same number.
  [[nodiscard]] static KeySeed from(std::uint64_t number);

  friend bool operator==(const KeySeed&, const KeySeed&) = default;

  // 64 mixed bits of a pair of words, for tables: the folded product of the words, each XORed with a part of the seed.
  [[nodiscard]] constexpr std::uint64_t mix(std::uint64_t high, std::uint64_t low) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(high ^ first) * (low ^ second);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  template <typename Key>
  [[nodiscard]] constexpr std::uint64_t mix(const Key& key) const {
    return mix(key.high_word(), key.low_word());
  }
};

// 64 well-mixed bits of a key, for sketches and samples: slower than KeySeed::mix(), but every bit of the key reaches
// every bit of the hash also with the default seed. Changing it changes the results of simulations.
template <typename Key>
[[nodiscard]] constexpr std::uint64_t hash_of(const Key& key, const KeySeed& seed) {
  std::uint64_t h = (key.high_word() * seed.first) ^ (key.low_word() * seed.second);
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93U;
  return h ^ (h >> 32);
}

}  // namespace cairn

template <>
struct std::hash<cairn::BlockKey> {
  std::size_t operator()(const cairn::BlockKey& key) const noexcept { return cairn::KeySeed::of_process().mix(key); }
};
