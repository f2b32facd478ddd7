#include "cairn/memory/host_text.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

std::string_view skip_spaces(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

}  // namespace

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) {
    return std::nullopt;
  }
  return text;
}

std::optional<std::uint64_t> find_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("Node ")) {
      line.remove_prefix(5);
      line = skip_spaces(line.substr(std::min(line.find(' '), line.size())));
    }
    if (!line.starts_with(name)) {
      continue;
    }
    line = skip_spaces(line.substr(name.size()));
    std::uint64_t number = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc()) {
      return std::nullopt;
    }
    const std::string_view unit = skip_spaces(std::string_view(rest, line.data() + line.size()));
    return unit.starts_with("kB") ? number * 1024 : number;
  }
  return std::nullopt;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  text = skip_spaces(text);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> read_number(const std::string& path) { return parse_number(read_text(path).value_or("")); }

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return str_cat(bytes, " bytes");
  }
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    amount /= 1024;
  }
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%.1f", amount);
  return str_cat(bytes, " bytes (", digits.data(), " ", kUnits[unit], ")");
}

std::string errno_text(int error) { return std::generic_category().message(error); }

void add_note(std::string& notes, std::string_view note) {
  if (!notes.empty() && !note.empty()) {
    notes.append("; ");
  }
  notes.append(note);
}

}  // namespace cairn
