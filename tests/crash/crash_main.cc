// GoogleTest's main with our own settings, so that scripts/crash.sh can run more kills than a test run does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/crash/crash_testing.h"

namespace cairn::crash {

// Sanitized processes take several times as long to start.
CrashSettings crash_settings{.kills = CAIRN_SANITIZED ? 30 : 200, .damages = CAIRN_SANITIZED ? 20 : 60};

namespace {

bool take(std::string_view word) {
  const auto number_after = [word](std::string_view name, auto& number) {
    if (!word.starts_with(name)) {
      return false;
    }
    char* end = nullptr;
    number = static_cast<std::remove_reference_t<decltype(number)>>(std::strtoull(word.data() + name.size(), &end, 10));
    return end == word.data() + word.size() && word.size() > name.size();
  };
  return number_after("--kills=", crash_settings.kills) || number_after("--damages=", crash_settings.damages) ||
         number_after("--seed=", crash_settings.seed);
}

}  // namespace
}  // namespace cairn::crash

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (!cairn::crash::take(argv[i])) {
      std::fprintf(stderr, "unknown argument %s; give --kills=N, --damages=N or --seed=S\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
