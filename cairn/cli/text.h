// Formats numbers, names and command lines for output.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "cairn/evict/retention.h"

namespace cairn::cli {

// "1,234,567"
[[nodiscard]] inline std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) {
    digits.insert(end - 3, 1, ',');
  }
  return digits;
}

// With this many digits after the point: "0.0817"
[[nodiscard]] inline std::string fixed(double number, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return text.data();
}

// "fifo, lru, ...", for help and messages.
[[nodiscard]] inline std::string policy_names() {
  std::string names;
  for (const PolicyKind kind : kAllPolicies) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(kind));
  }
  return names;
}

// The command line, quoted for a shell. The path of the program is replaced by "cairn".
[[nodiscard]] inline std::string command_line(int count, const char* const* arguments) {
  std::string line = "cairn";
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/%@";
    line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      line += c == '\'' ? "'\\''" : std::string(1, c);
    }
    line += '\'';
  }
  return line;
}

}  // namespace cairn::cli
