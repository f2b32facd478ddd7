// ManagerConfig as a TOML file. The only source that includes toml++, which is slow to compile.
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
#include "cairn/manager/config_mistakes.h"
#include "cairn/manager/config_values.h"
#include "cairn/manager/manager_config.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// A bad file ("[!]") fails assertions of toml++, which with NDEBUG become assumptions of the compiler. Both are turned off:
// toml++ reports the same mistakes as errors later.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

namespace cairn {
namespace {

// Rewrites a TOML text to ASCII, because toml++ up to 3.4 mishandles other characters (U+00E9 is one) when it tests for white
// space: outside strings and comments, and after an escaped line break in a string. Comments lose these characters, and in "..."
// strings they become \UXXXXXXXX. TOML allows them nowhere else except in '...' strings, where toml++ does not test for white
// space. Line numbers stay the same.
class AsciiText {
 public:
  explicit AsciiText(std::string_view text) : rest_(text) {}

  // kInvalidArgument if there is a character where TOML allows only ASCII; line() is its line.
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
                    "only strings and comments may have characters beyond ASCII; put the text in double quotes");
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

  // Copies a string, up to the quotes that end it or, if they are missing, to the end of the line: toml++ reports that.
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

  // Escapes one UTF-8 character. Bytes that are not UTF-8 stay as they are: toml++ rejects them.
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

// One `key = value` of a file, or an unknown section.
struct Entry {
  std::uint32_t line = 0;
  std::string name;  // with its section: "host.size"
  const toml::node* value = nullptr;
};

bool is_section(std::string_view name) {
  return std::ranges::any_of(config_keys(),
                             [name](const ConfigKey& key) { return key.name.starts_with(str_cat(name, ".")); });
}

// Lists the `key = value` pairs of a table. A section that does not exist becomes one entry, whatever is in it.
void collect(const toml::table& table, const std::string& section, std::vector<Entry>& entries) {
  for (const auto& [key, value] : table) {
    // In "host.size" = 1 the dot is part of the name, not a way into a section.
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
      sections.push_back(str_cat("[", known.section(), "]"));
    }
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown section [", entry.name, "]", suggestion(str_cat("[", entry.name, "]"), sections)));
  }
  if (key == nullptr && is_section(entry.name)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(entry.name, " is a section, not a key; write its keys below [", entry.name, "]"));
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
  return fail(ErrorCode::kInvalidArgument,
              str_cat(key->name, " is ", kind_of(*entry.value), "; expected ", key->values));
}

std::string toml_string(std::string_view text) {
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

bool read_toml(std::string_view text, std::string_view file_name, ManagerConfig& config, ConfigMistakes& mistakes) {
  const auto add = [&](std::uint32_t line, std::string_view key, const Error& error) {
    mistakes.add(key, {error.code, str_cat(file_name, ":", line, ": ", error.message)});
  };
  AsciiText letters(text);
  const Result<std::string> ascii = letters.rewrite();
  if (!ascii) {
    add(letters.line(), {}, ascii.error());
    return false;
  }
  const toml::parse_result parsed = toml::parse(*ascii);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    add(error.source().begin.line, {}, {ErrorCode::kInvalidArgument, std::string(error.description())});
    return false;
  }
  std::vector<Entry> entries;
  collect(parsed.table(), {}, entries);
  // toml++ sorts keys by name; mistakes are listed in the order of the file.
  std::ranges::stable_sort(entries, {}, &Entry::line);
  for (const Entry& entry : entries) {
    if (const Status taken = take(entry, config); !taken) {
      add(entry.line, entry.name, taken.error());
    }
  }
  return true;
}

bool read_toml_file(const std::string& path, ManagerConfig& config, ConfigMistakes& mistakes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    mistakes.add({}, {ErrorCode::kNotFound, str_cat("cannot open configuration ", path, ": ", std::strerror(errno))});
    return false;
  }
  std::string text;
  // read() catches the exception that the stream throws if `path` is a folder.
  for (char piece[4096]; file.read(piece, sizeof(piece)) || file.gcount() > 0;) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) {
    mistakes.add({}, {ErrorCode::kIo, str_cat("cannot read configuration ", path, "; is it a folder?")});
    return false;
  }
  return read_toml(text, path, config, mistakes);
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
      out += str_cat("# ", key.short_name(), " is set, but not shown\n");
      continue;
    }
    out += str_cat(key.short_name(), " = ", key.is_bare(value) ? value : toml_string(value), "\n");
  }
  return out;
}

}  // namespace cairn
