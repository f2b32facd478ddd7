// Configuration files: any bytes give either a configuration that reads back as it was written, or an error with file
// and line.
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "cairn/base/check.h"
#include "cairn/manager/manager_config.h"

namespace {

// Whether each mistake of the message begins with the file: one alone, or "N mistakes in the configuration:" and N lines.
bool names_the_file(std::string_view message) {
  if (message.starts_with("fuzz.toml:")) {
    return true;
  }
  std::size_t mistakes = 0;
  const auto [end, error] = std::from_chars(message.data(), message.data() + message.size(), mistakes);
  std::size_t named = 0;
  for (std::size_t at = message.find("\n  fuzz.toml:"); at != std::string_view::npos;
       at = message.find("\n  fuzz.toml:", at + 1)) {
    ++named;
  }
  return error == std::errc() && mistakes > 1 && named >= mistakes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  cairn::Result<cairn::ManagerConfig> config = cairn::ManagerConfig::from_toml(text, "fuzz.toml");
  if (!config) {
    CAIRN_CHECK(names_the_file(config.error().message), "each mistake names its file and line");
    return 0;
  }
  CAIRN_CHECK(config->model.secret.empty() || config->to_toml().find(config->model.secret) == std::string::npos,
              "a secret is not written");
  config->model.secret.clear();
  const std::string written = config->to_toml();
  const cairn::Result<cairn::ManagerConfig> again = cairn::ManagerConfig::from_toml(written, "again.toml");
  CAIRN_CHECK(again.has_value(), "a written configuration can be read");
  CAIRN_CHECK(again->to_toml() == written, "a configuration reads back as it was written");
  const cairn::Status valid = config->validate();
  CAIRN_CHECK(valid || !valid.error().message.empty(), "an error says what is wrong");
  return 0;
}
