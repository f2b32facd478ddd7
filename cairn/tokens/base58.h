// Base58 (Bitcoin's alphabet) of 64-bit values as 8 big-endian bytes: the text form of hashes. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::internal {

[[nodiscard]] std::string to_base58(std::uint64_t value);
// Accepts only what to_base58() writes: each leading zero byte is one '1', so every value has one text.
[[nodiscard]] std::optional<std::uint64_t> from_base58(std::string_view text);

}  // namespace cairn::internal
