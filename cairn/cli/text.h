// How numbers look in output that people read.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::cli {

// "1,234,567"
[[nodiscard]] inline std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t end = digits.size(); end > 3; end -= 3) {
    digits.insert(end - 3, 1, ',');
  }
  return digits;
}

}  // namespace cairn::cli
