// Values of a configuration as people write them, and back. Every parse_x() takes what print_x() writes and gives the
// same value again; a text that is none is nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/base/clock.h"

namespace cairn {

// Digits, up to the bounds.
[[nodiscard]] std::optional<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most);
// Finite, up to the bounds: "0.05", "1e6".
[[nodiscard]] std::optional<double> parse_real(std::string_view text, double least, double most);
[[nodiscard]] std::string print_real(double value);
// The same, or in hundredths: "5%".
[[nodiscard]] std::optional<double> parse_share(std::string_view text, double least, double most);
// Bytes: "64GiB", "20 GB", "4096"; whole numbers of KB to PB or KiB to PiB, in any case.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);
// In the largest unit of 1024 that it is a whole number of.
[[nodiscard]] std::string print_size(std::uint64_t bytes);
// "250ms", "5 s", "1m": a whole number of ns, us, ms, s, m or h, more than none.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);
[[nodiscard]] std::string print_duration(Duration duration);
// "true" or "false", 1 or 0.
[[nodiscard]] std::optional<bool> parse_flag(std::string_view text);
// UTF-8 without control characters.
[[nodiscard]] bool is_plain_text(std::string_view text);

// How many single letters have to be put in, left out or exchanged to make one of the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace cairn
