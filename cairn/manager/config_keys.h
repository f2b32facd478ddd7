// ConfigKey: one key of a ManagerConfig. The list of them is the only place that knows what there is to configure: files,
// the environment, command lines, what is printed and what errors say all go through it.
//
// Threads:  the list is made once and never changes.
// Fails:    set_key() on a value that the key does not take: what it was, and what it may be.
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
  std::string values;                                           // what it may be, after "give": "bytes, such as 64GiB"
  bool is_text = false;                                         // in quotes whatever it looks like
  bool is_secret = false;                                       // never shown: not in dumps, not in errors
  std::function<bool(ManagerConfig&, std::string_view)> parse;  // false: the text is no value of it
  std::function<std::string(const ManagerConfig&)> print;       // what parse() reads back

  [[nodiscard]] std::string_view section() const;  // "offload.host"; empty for the first ones
  [[nodiscard]] std::string_view short_name() const;
  [[nodiscard]] std::string variable() const;  // "CAIRN_HOST_SIZE"
  // Whether a value as print() gives it stands in files of TOML and JSON as it is: a number, true, false.
  [[nodiscard]] bool is_bare(std::string_view value) const;
};

// Section by section, those of none first.
[[nodiscard]] std::span<const ConfigKey> config_keys();
[[nodiscard]] const ConfigKey* find_key(std::string_view name);
[[nodiscard]] Status set_key(ManagerConfig& config, const ConfigKey& key, std::string_view value);

// "; did you mean host.size?", or what to do where no candidate is near.
[[nodiscard]] std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);
[[nodiscard]] Unexpected<Error> unknown_key(std::string_view name);

// Of one element; nullopt for a type that is not known. "bf16" has 16.
[[nodiscard]] std::optional<std::uint32_t> element_bits(std::string_view element_type);

}  // namespace cairn
