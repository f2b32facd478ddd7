// ManagerConfig as a file of TOML. The only source that knows the library, which is slow to compile.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_keys.h"
#include "cairn/manager/config_values.h"
#include "cairn/manager/manager_config.h"

namespace cairn {
namespace {

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
  const toml::parse_result parsed = toml::parse(text);
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
    out += str_cat(key.short_name(), " = ", key.is_bare(value) ? value : quoted(value), "\n");
  }
  return out;
}

}  // namespace cairn
