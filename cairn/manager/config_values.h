// Reads and prints the values of a configuration. parse_x() returns std::nullopt if the text is not a valid value, and reads
// back what print_x() prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/base/clock.h"

namespace cairn {

// Only digits; `least` and `most` are allowed.
[[nodiscard]] std::optional<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most);
// "0.05", "1e6"; finite, `least` and `most` are allowed.
[[nodiscard]] std::optional<double> parse_real(std::string_view text, double least, double most);
[[nodiscard]] std::string print_real(double value);
// "0.05" or "5%".
[[nodiscard]] std::optional<double> parse_share(std::string_view text, double least, double most);
// "64GiB", "20 GB", "4096": a whole number of bytes, KB to PB or KiB to PiB. Upper and lower case are the same.
inline constexpr std::string_view kSizeUnits = "B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB or PiB";
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);
// As briefly as possible, as a user would write it: "64GiB", "900PB".
[[nodiscard]] std::string print_size(std::uint64_t bytes);
// "250ms", "5 s", "1m": a whole number above 0, and its unit.
inline constexpr std::string_view kTimeUnits = "ns, us, ms, s, m or h";
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);
[[nodiscard]] std::string print_duration(Duration duration);
// "true" or "1", "false" or "0".
[[nodiscard]] std::optional<bool> parse_flag(std::string_view text);
// UTF-8 without control characters.
[[nodiscard]] bool is_plain_text(std::string_view text);

// The number of characters to insert, delete or replace to turn one text into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace cairn
