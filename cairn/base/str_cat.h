// str_cat: joins text and numbers into one string, for error messages and reports. Not for hot paths.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace cairn {

namespace internal {

inline void append_piece(std::string& out, std::string_view piece) { out.append(piece); }
inline void append_piece(std::string& out, char piece) { out.push_back(piece); }
template <typename Number>
  requires(std::integral<Number> || std::floating_point<Number>)
void append_piece(std::string& out, Number piece) {
  out.append(std::to_string(piece));
}

}  // namespace internal

template <typename... Pieces>
[[nodiscard]] std::string str_cat(const Pieces&... pieces) {
  std::string out;
  (internal::append_piece(out, pieces), ...);
  return out;
}

}  // namespace cairn
