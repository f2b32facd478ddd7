#include "cairn/tokens/block_key.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/tokens/base58.h"
#include "cairn/tokens/bytes.h"

namespace cairn {
namespace {

Unexpected<Error> bad_text(std::string_view text, std::string_view why) {
  return fail(ErrorCode::kCorrupt,
              str_cat("'", text, "' is not a block key: ", why, "; the form is position:hash[:parent fragment]"));
}

// Only the digits that to_string writes: no sign, no leading zero.
std::optional<std::uint32_t> parse_position(std::string_view digits) {
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) {
    return std::nullopt;
  }
  std::uint32_t position = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), position);
  if (error != std::errc() || end != digits.data() + digits.size() || position > BlockKey::kMaxPosition) {
    return std::nullopt;
  }
  return position;
}

// SplitMix64.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace

Result<BlockKey> BlockKey::make(std::uint64_t position, SequenceHash current, SequenceHash parent) {
  if (position > kMaxPosition) {
    return fail(ErrorCode::kOutOfRange, str_cat("block position ", position, " is beyond ", kMaxPosition,
                                                ", the last one a block key can hold; use larger blocks"));
  }
  return make_checked(static_cast<std::uint32_t>(position), current, parent);
}

Result<BlockKey> BlockKey::extend(BlockHash child) const {
  return make(std::uint64_t{position()} + 1, chain_hash(sequence_hash(), child), sequence_hash());
}

std::array<std::byte, 16> BlockKey::to_bytes() const {
  std::array<std::byte, 16> bytes;
  const std::span<std::byte, 16> out(bytes);
  internal::store_be64(out.first<8>(), hi_);
  internal::store_be64(out.last<8>(), lo_);
  return bytes;
}

Result<BlockKey> BlockKey::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != 16) {
    return fail(ErrorCode::kCorrupt, str_cat("a block key is 16 bytes, not ", bytes.size(), "; drop the record"));
  }
  const BlockKey key(internal::load_be64(bytes.first<8>()), internal::load_be64(bytes.last<8>()));
  if (key.hi_ >> 62 == 3) {
    return fail(ErrorCode::kCorrupt, "the bytes of a block key have mode 3, which does not exist; drop the record");
  }
  const std::uint32_t position = key.position();
  if (mode_of(position).number != key.hi_ >> 62) {
    return fail(ErrorCode::kCorrupt, str_cat("the bytes of a block key have mode ", key.hi_ >> 62, " for position ",
                                             position, ", which fits a smaller one; drop the record"));
  }
  return key;
}

std::string BlockKey::to_string() const {
  std::string text = str_cat(position(), ':', internal::to_base58(value_of(sequence_hash())));
  const std::uint64_t last = lo_ & low_bits(fragment_bits());
  if (position() != 0 || last != 0) {
    text += str_cat(':', internal::to_base58(last));
  }
  return text;
}

Result<BlockKey> BlockKey::parse(std::string_view text) {
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos) {
    return bad_text(text, "it has no ':'");
  }
  const std::optional<std::uint32_t> position = parse_position(text.substr(0, first));
  if (!position) {
    return bad_text(text, str_cat("the position is not a number from 0 to ", kMaxPosition));
  }
  const std::string_view hashes = text.substr(first + 1);
  const std::size_t second = hashes.find(':');
  if (second == std::string_view::npos && *position != 0) {
    return bad_text(text, "every key but those of position 0 has a parent fragment");
  }
  const std::optional<std::uint64_t> current = internal::from_base58(hashes.substr(0, second));
  if (!current) {
    return bad_text(text, "the hash is not base58 of 8 bytes");
  }
  if (second == std::string_view::npos) {
    return make_checked(0, SequenceHash{*current}, SequenceHash{0});
  }
  const std::optional<std::uint64_t> last = internal::from_base58(hashes.substr(second + 1));
  if (!last || (*last & ~low_bits(mode_of(*position).fragment_bits)) != 0) {
    return bad_text(text, "the parent fragment is not base58 of 8 bytes, or has more bits than its position leaves");
  }
  if (*position != 0) {
    return make_checked(*position, SequenceHash{*current}, SequenceHash{*last});
  }
  if (*last == 0) {
    return bad_text(text, "further bits of position 0 are left out if all of them are 0");
  }
  return wide_root(SequenceHash{*current}, *last);
}

KeySeed KeySeed::random() {
  std::array<std::byte, sizeof(KeySeed)> bytes;
  internal::fill_random(bytes);
  KeySeed seed;
  std::memcpy(&seed, bytes.data(), bytes.size());
  return {.first = seed.first | 1, .second = seed.second | 1};
}

KeySeed KeySeed::from(std::uint64_t number) {
  const std::uint64_t first = next(number);
  return {.first = first | 1, .second = next(number) | 1};
}

}  // namespace cairn
