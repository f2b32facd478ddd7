#include "cairn/hash/sha256_digest.h"

#include <cstdint>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

// 16 if the character is not a digit.
constexpr std::uint8_t digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<std::uint8_t>(c - 'A' + 10);
  return 16;
}

}  // namespace

std::string Digest::to_hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<std::size_t>(byte >> 4)]);
    text.push_back(kDigits[std::to_integer<std::size_t>(byte & std::byte{15})]);
  }
  return text;
}

Result<Digest> Digest::from_hex(std::string_view text) {
  Digest digest;
  bool good = text.size() == 2 * digest.bytes.size();
  for (std::size_t i = 0; good && i < digest.bytes.size(); ++i) {
    const std::uint8_t high = digit_of(text[2 * i]);
    const std::uint8_t low = digit_of(text[2 * i + 1]);
    good = high < 16 && low < 16;
    digest.bytes[i] = std::byte{static_cast<std::uint8_t>(high << 4 | low)};
  }
  if (!good) {
    return fail(ErrorCode::kCorrupt, str_cat("'", text, "' is not a SHA-256 digest; give 64 hexadecimal digits"));
  }
  return digest;
}

}  // namespace cairn
