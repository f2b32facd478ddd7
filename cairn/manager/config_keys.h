// ConfigKey: one key of a ManagerConfig: its name, its help, how to read and print its value. Files, the environment, command
// lines, `cairn config` and the documentation all use the list of keys, so that a key is described in one place.
//
// Thread safety: the list is made once and never changes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"

namespace cairn {

struct ConfigKey {
  std::string name;                                             // "host.size"
  std::string help;                                             // one line
  std::string values;                                           // what is allowed: "a whole number, at least 1"
  bool is_text = false;                                         // printed in quotes, even if it looks like a number
  bool is_secret = false;                                       // never printed, not even in errors
  std::function<bool(ManagerConfig&, std::string_view)> parse;  // false if the text is not a valid value
  std::function<std::string(const ManagerConfig&)> print;       // parse() reads it back

  [[nodiscard]] std::string_view section() const;  // "offload.host"; empty for keys outside of sections
  [[nodiscard]] std::string_view short_name() const;
  [[nodiscard]] std::string variable() const;  // "CAIRN_HOST_SIZE"
  // Whether TOML and JSON need no quotes around a value that print() returned: a number, true or false.
  [[nodiscard]] bool is_bare(std::string_view value) const;
};

// Section by section; keys outside of sections come first.
[[nodiscard]] std::span<const ConfigKey> config_keys();
[[nodiscard]] const ConfigKey* find_key(std::string_view name);
[[nodiscard]] Status set_key(ManagerConfig& config, const ConfigKey& key, std::string_view value);

// "; did you mean host.size?", or how to list all candidates if none is similar to `name`.
[[nodiscard]] std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);
[[nodiscard]] Unexpected<Error> unknown_key(std::string_view name);

// Bits of one element: 16 for "bf16"; std::nullopt for an unknown type.
[[nodiscard]] std::optional<std::uint32_t> element_bits(std::string_view element_type);

}  // namespace cairn
