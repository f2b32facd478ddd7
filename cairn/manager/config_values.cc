#include "cairn/manager/config_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t value;
};

// Largest first: print_in() takes the first one that fits.
constexpr Unit kBinaryUnits[] = {
    {"PiB", 1ULL << 50U}, {"TiB", 1ULL << 40U}, {"GiB", 1ULL << 30U}, {"MiB", 1ULL << 20U}, {"KiB", 1ULL << 10U}};
constexpr Unit kDecimalUnits[] = {{"PB", 1'000'000'000'000'000},
                                  {"TB", 1'000'000'000'000},
                                  {"GB", 1'000'000'000},
                                  {"MB", 1'000'000},
                                  {"KB", 1'000},
                                  {"B", 1},
                                  {"", 1}};
constexpr Unit kTimes[] = {{"h", 3'600'000'000'000}, {"m", 60'000'000'000}, {"s", 1'000'000'000},
                           {"ms", 1'000'000},        {"us", 1'000},         {"ns", 1}};

// std::tolower() depends on the locale.
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

// Splits "20 GB" into 20 and "GB".
std::optional<std::pair<std::uint64_t, std::string_view>> split_unit(std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return std::pair(count, text);
}

std::optional<std::uint64_t> times(std::uint64_t count, std::uint64_t unit, std::uint64_t most) {
  return count > most / unit ? std::nullopt : std::optional(count * unit);
}

std::string print_in(std::uint64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.value == 0) {
      return str_cat(value / unit.value, unit.name);
    }
  }
  return std::to_string(value);
}

}  // namespace

std::optional<std::uint64_t> parse_whole(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> parse_real(std::string_view text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most) ||
      !std::isfinite(value)) {
    return std::nullopt;
  }
  return value == 0 ? 0 : value;  // no "-0"
}

std::string print_real(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::optional<double> parse_share(std::string_view text, double least, double most) {
  if (!text.ends_with('%')) {
    return parse_real(text, least, most);
  }
  const std::optional<double> hundredths = parse_real(
      text.substr(0, text.size() - 1), std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
  return hundredths && *hundredths / 100 >= least && *hundredths / 100 <= most ? std::optional(*hundredths / 100)
                                                                               : std::nullopt;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const auto parts = split_unit(text);
  if (!parts) {
    return std::nullopt;
  }
  for (const std::span<const Unit> units :
       {std::span<const Unit>(kBinaryUnits), std::span<const Unit>(kDecimalUnits)}) {
    for (const Unit& unit : units) {
      if (same_but_for_case(parts->second, unit.name)) {
        return times(parts->first, unit.value, std::numeric_limits<std::uint64_t>::max());
      }
    }
  }
  return std::nullopt;
}

std::string print_size(std::uint64_t bytes) {
  constexpr std::uint64_t kMB = 1'000'000;
  const std::string binary = print_in(bytes, kBinaryUnits);
  const std::string decimal = bytes % kMB == 0 ? print_in(bytes, kDecimalUnits) : binary;
  return decimal.size() < binary.size() ? decimal : binary;
}

std::optional<Duration> parse_duration(std::string_view text) {
  const auto parts = split_unit(text);
  if (!parts || parts->first == 0) {
    return std::nullopt;
  }
  for (const Unit& unit : kTimes) {
    if (parts->second == unit.name) {
      const auto most = static_cast<std::uint64_t>(std::numeric_limits<Duration::rep>::max());
      const std::optional<std::uint64_t> nanoseconds = times(parts->first, unit.value, most);
      return nanoseconds ? std::optional(Duration(static_cast<Duration::rep>(*nanoseconds))) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string print_duration(Duration duration) {
  return duration <= Duration::zero() ? str_cat(duration.count(), "ns")
                                      : print_in(static_cast<std::uint64_t>(duration.count()), kTimes);
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "true" || text == "1") {
    return true;
  }
  return text == "false" || text == "0" ? std::optional(false) : std::nullopt;
}

bool is_plain_text(std::string_view text) {
  const auto byte = [text](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::uint32_t first = byte(i);
    if (first < 0x20 || first == 0x7f) {
      return false;
    }
    const std::size_t length = first < 0x80              ? 1
                               : (first & 0xe0U) == 0xc0 ? 2
                               : (first & 0xf0U) == 0xe0 ? 3
                               : (first & 0xf8U) == 0xf0 ? 4
                                                         : 0;
    std::uint32_t point = length == 1 ? first : first & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0U) != 0x80) {
        return false;
      }
      point = point << 6U | (byte(i + k) & 0x3fU);
    }
    // Overlong encodings, surrogates, code points beyond Unicode, and the control characters U+0080 to U+009F.
    constexpr std::uint32_t kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};
    if (length == 0 || point < kLeast[length] || (point >= 0xd800 && point <= 0xdfff) || point > 0x10ffff) {
      return false;
    }
    i += length;
  }
  return true;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distance of a[0..i) to b[0..j), for each j
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace cairn
