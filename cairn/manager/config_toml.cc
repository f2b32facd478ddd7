// ManagerConfig as a file of TOML. The only source that knows the library, which is slow to compile.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_keys.h"
#include "cairn/manager/config_values.h"
#include "cairn/manager/manager_config.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// The library asserts what a bad file breaks ("[!]"), or has compilers assume it, and reports it as an error further on.
// Without NDEBUG it assumes nothing.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

namespace cairn {
namespace {

// Rewrites the letters of a file that toml++ mishandles. Up to 3.4 it calls letters such as U+00E9 unreachable when it
// asks whether they are white space, which it asks of any character outside strings and comments, and after a line break
// that a string escapes. So comments lose their letters, and those of "..." strings become \UXXXXXXXX. TOML allows letters
// beyond ASCII nowhere else but in '...' strings, which are never asked about. Lines keep their numbers.
class AsciiText {
 public:
  explicit AsciiText(std::string_view text) : rest_(text) {}

  // kInvalidArgument if a letter stands where TOML allows none; line() is where.
  Result<std::string> rewrite() {
    if (rest_.starts_with("\xEF\xBB\xBF")) {
      rest_.remove_prefix(3);
    }
    while (!rest_.empty()) {
      if (rest_.front() == '#') {
        comment();
      } else if (rest_.starts_with("\"\"\"") || rest_.starts_with("'''")) {
        string(rest_.substr(0, 3));
      } else if (rest_.front() == '"' || rest_.front() == '\'') {
        string(rest_.substr(0, 1));
      } else if (is_letter(rest_.front())) {
        return fail(ErrorCode::kInvalidArgument,
                    "a character outside ASCII stands outside strings and comments; put the text in double quotes");
      } else {
        keep(1);
      }
    }
    return std::move(out_);
  }
  [[nodiscard]] std::uint32_t line() const { return line_; }

 private:
  static bool is_letter(char c) { return static_cast<unsigned char>(c) >= 0x80; }

  void keep(std::size_t count) {
    const std::string_view kept = rest_.substr(0, count);
    line_ += static_cast<std::uint32_t>(std::ranges::count(kept, '\n'));
    out_ += kept;
    rest_.remove_prefix(kept.size());
  }

  void comment() {
    while (!rest_.empty() && rest_.front() != '\n') {
      if (is_letter(rest_.front())) {
        rest_.remove_prefix(1);
      } else {
        keep(1);
      }
    }
  }

  // Up to the quotes that end it, or for a string of one line to its end: the library says what is wrong there.
  void string(std::string_view quotes) {
    keep(quotes.size());
    const bool has_escapes = quotes.front() == '"';
    while (!rest_.empty() && (quotes.size() == 3 || rest_.front() != '\n')) {
      if (rest_.starts_with(quotes)) {
        keep(quotes.size());
        return;
      }
      if (has_escapes && rest_.front() == '\\') {
        keep(2);
      } else if (has_escapes && is_letter(rest_.front())) {
        escape();
      } else {
        keep(1);
      }
    }
  }

  // One UTF-8 character. Bytes that are not UTF-8 stay as they are: the library refuses them.
  void escape() {
    const auto byte = [this](std::size_t i) { return static_cast<unsigned char>(rest_[i]); };
    const std::size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : byte(0) >= 0xC2 ? 2 : 1;
    std::uint32_t point = byte(0) & (0xFFU >> (size + 1));
    bool is_whole = size > 1 && size <= rest_.size();
    for (std::size_t i = 1; i < size && is_whole; ++i) {
      is_whole = (byte(i) & 0xC0U) == 0x80U;
      point = (point << 6) | (byte(i) & 0x3FU);
    }
    if (!is_whole) {
      keep(1);
      return;
    }
    char escaped[11];
    std::snprintf(escaped, sizeof(escaped), "\\U%08X", point);
    out_ += escaped;
    rest_.remove_prefix(size);
  }

  std::string_view rest_;
  std::string out_;
  std::uint32_t line_ = 1;
};

// One `key = value` of a file, or what stands in the place of one.
struct Entry {
  std::uint32_t line = 0;
  std::string name;  // with its sections
  const toml::node* value = nullptr;
};

bool is_section(std::string_view name) {
  return std::ranges::any_of(config_keys(),
                             [name](const ConfigKey& key) { return key.name.starts_with(str_cat(name, ".")); });
}

// Sections that are none stand for all that is in them.
void collect(const toml::table& table, const std::string& section, std::vector<Entry>& entries) {
  for (const auto& [key, value] : table) {
    // A dot within a name was in quotes: it is no way into a section.
    const bool quoted = key.str().find('.') != std::string_view::npos;
    const std::string short_name = quoted ? str_cat("\"", key.str(), "\"") : std::string(key.str());
    std::string name = section.empty() ? short_name : str_cat(section, ".", short_name);
    if (const toml::table* inner = value.as_table(); inner != nullptr && is_section(name)) {
      collect(*inner, name, entries);
    } else {
      entries.push_back({.line = key.source().begin.line, .name = std::move(name), .value = &value});
    }
  }
}

std::string_view kind_of(const toml::node& value) {
  return value.is_table() ? "a section" : value.is_array() ? "a list" : "a date or time";
}

Status take(const Entry& entry, ManagerConfig& config) {
  const ConfigKey* const key = find_key(entry.name);
  if (key == nullptr && entry.value->is_table()) {
    std::vector<std::string> sections;
    for (const ConfigKey& known : config_keys()) {
      sections.emplace_back(known.section());
    }
    return fail(ErrorCode::kInvalidArgument,
                str_cat("[", entry.name, "] is no section", suggestion(entry.name, sections)));
  }
  if (key == nullptr) {
    return unknown_key(entry.name);
  }
  if (const auto* text = entry.value->as_string()) {
    return set_key(config, *key, text->get());
  }
  if (const auto* integer = entry.value->as_integer()) {
    return set_key(config, *key, std::to_string(integer->get()));
  }
  if (const auto* real = entry.value->as_floating_point()) {
    return set_key(config, *key, print_real(real->get()));
  }
  if (const auto* flag = entry.value->as_boolean()) {
    return set_key(config, *key, flag->get() ? "true" : "false");
  }
  return fail(ErrorCode::kInvalidArgument, str_cat(key->name, " is ", kind_of(*entry.value), "; give ", key->values));
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + '"';
}

}  // namespace

Result<ManagerConfig> ManagerConfig::from_toml(std::string_view text, std::string_view file_name) {
  const auto at_line = [file_name](std::uint32_t line, ErrorCode code, std::string_view message) {
    return fail(code, str_cat(file_name, ":", line, ": ", message));
  };
  AsciiText letters(text);
  const Result<std::string> ascii = letters.rewrite();
  if (!ascii) {
    return at_line(letters.line(), ascii.error().code, ascii.error().message);
  }
  const toml::parse_result parsed = toml::parse(*ascii);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return at_line(error.source().begin.line, ErrorCode::kInvalidArgument, error.description());
  }
  std::vector<Entry> entries;
  collect(parsed.table(), {}, entries);
  // The library sorts by name; who reads the errors goes from top to bottom.
  std::ranges::stable_sort(entries, {}, &Entry::line);
  ManagerConfig config;
  for (const Entry& entry : entries) {
    if (const Status taken = take(entry, config); !taken) {
      return at_line(entry.line, taken.error().code, taken.error().message);
    }
  }
  return config;
}

Result<ManagerConfig> ManagerConfig::from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(ErrorCode::kNotFound, str_cat("the configuration ", path, " cannot be opened: ", std::strerror(errno)));
  }
  std::string text;
  // read() catches what a folder makes the stream throw.
  for (char piece[4096]; file.read(piece, sizeof(piece)) || file.gcount() > 0;) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    return fail(ErrorCode::kIo, str_cat("the configuration ", path, " cannot be read to its end"));
  }
  return from_toml(text, path);
}

std::string ManagerConfig::to_toml() const {
  std::string out;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    if (key.section() != section) {
      section = key.section();
      out += str_cat("\n[", section, "]\n");
    }
    const std::string value = key.print(*this);
    out += str_cat("# ", key.help, " (", key.values, ")\n");
    if (key.is_secret && !value.empty()) {
      out += str_cat("# ", key.short_name(), " is set and not shown\n");
      continue;
    }
    out += str_cat(key.short_name(), " = ", key.is_bare(value) ? value : quoted(value), "\n");
  }
  return out;
}

}  // namespace cairn
