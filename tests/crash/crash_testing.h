// The command-line settings of crash_test: --kills=N, --damages=N, --seed=S.
#pragma once

#include <cstdint>

namespace cairn::crash {

struct CrashSettings {
  std::uint32_t kills = 0;
  std::uint32_t damages = 0;
  std::uint64_t seed = 1;
};
extern CrashSettings crash_settings;

}  // namespace cairn::crash
