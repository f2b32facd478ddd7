// ConfigMistakes: collects the mistakes in a configuration, so that one Error lists them all. Internal.
//
//   host.size is '64 gigs'; expected a size such as 64GiB (...)
//
//   2 mistakes in the configuration:
//     cairn.toml:3: unknown key host.sise; did you mean host.size?
//     CAIRN_BLOCK_SIZE: block_size is '0'; expected a whole number, at least 1
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"

namespace cairn {

struct ManagerConfig;

class ConfigMistakes {
 public:
  // The value of one key is wrong, or `key` is not a key.
  void add(std::string_view key, Error error) {
    wrong_keys_.emplace_back(key);
    errors_.push_back(std::move(error));
  }
  // Several keys do not fit together. Ignored if the value of one of them is wrong already: it has kept its default, which is
  // not what the user meant.
  void add(const std::vector<std::string>& keys, std::string message) {
    if (std::ranges::none_of(keys, [this](const std::string& key) { return is_wrong(key); })) {
      errors_.push_back({ErrorCode::kInvalidArgument, std::move(message)});
    }
  }
  [[nodiscard]] bool is_wrong(std::string_view key) const {
    return std::ranges::find(wrong_keys_, key) != wrong_keys_.end();
  }
  [[nodiscard]] bool empty() const { return errors_.empty(); }

  // One mistake is returned as it was added.
  [[nodiscard]] Status status() const {
    if (errors_.size() <= 1) {
      return errors_.empty() ? Status() : Unexpected(Error(errors_.front()));
    }
    std::string message = str_cat(errors_.size(), " mistakes in the configuration:");
    for (const Error& error : errors_) {
      message += str_cat("\n  ", error.message);
    }
    return fail(ErrorCode::kInvalidArgument, std::move(message));
  }

 private:
  std::vector<std::string> wrong_keys_;
  std::vector<Error> errors_;
};

// Sets the keys of a TOML file. False if nothing of the file could be read because it is not TOML.
bool read_toml(std::string_view text, std::string_view file_name, ManagerConfig& config, ConfigMistakes& mistakes);
bool read_toml_file(const std::string& path, ManagerConfig& config, ConfigMistakes& mistakes);

}  // namespace cairn
