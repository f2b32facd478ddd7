// Public traces and recorded runs that are too large for the repository. The environment variable CAIRN_TEST_DATA names the
// folder that holds them: traces/ and golden/. Generated traces with recorded reports in tests/golden/ cover the same code.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

namespace cairn {

inline constexpr std::string_view kNoTestData = "CAIRN_TEST_DATA is not set; see docs/testing.md";

// std::nullopt if the variable is not set. The path is returned whether or not it exists: a file that is missing from the
// named folder is to fail the test.
inline std::optional<std::filesystem::path> test_data(std::string_view name) {
  const char* folder = std::getenv("CAIRN_TEST_DATA");
  if (folder == nullptr || *folder == '\0') {
    return std::nullopt;
  }
  return std::filesystem::path(folder) / name;
}

}  // namespace cairn
