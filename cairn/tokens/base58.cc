#include "cairn/tokens/base58.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace cairn::internal {
namespace {

constexpr std::string_view kAlphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

// countl_zero(0) is 64, so 0 counts as eight zero bytes.
std::size_t leading_zero_bytes(std::uint64_t value) { return static_cast<std::size_t>(std::countl_zero(value)) / 8; }

}  // namespace

std::string to_base58(std::uint64_t value) {
  const std::size_t zeros = leading_zero_bytes(value);
  std::string text;
  for (; value != 0; value /= 58) {
    text.push_back(kAlphabet[value % 58]);
  }
  text.append(zeros, kAlphabet[0]);
  std::reverse(text.begin(), text.end());
  return text;
}

std::optional<std::uint64_t> from_base58(std::string_view text) {
  const std::size_t zeros = std::min(text.find_first_not_of(kAlphabet[0]), text.size());
  std::uint64_t value = 0;
  for (const char c : text.substr(zeros)) {
    const std::size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos || __builtin_mul_overflow(value, std::uint64_t{58}, &value) ||
        __builtin_add_overflow(value, std::uint64_t{digit}, &value)) {
      return std::nullopt;
    }
  }
  if (zeros != leading_zero_bytes(value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace cairn::internal
