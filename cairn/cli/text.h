// How numbers and commands look in output that people read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::cli {

// "1,234,567"
[[nodiscard]] inline std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) {
    digits.insert(end - 3, 1, ',');
  }
  return digits;
}

// A command that a shell would read as these arguments; what its path is does not matter to the reader.
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
