// `cairn serve`: a manager without a device tier in a process of its own, with its HTTP port; with --demo, simulated engines that
// use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

inline constexpr const char* kDefaultHttpAddress = "127.0.0.1:9470";

struct ServeOptions {
  ManagerConfig config = {};
  bool demo = false;
  std::uint32_t engines = 3;  // of the demo
  bool json = false;
};

// The configuration of --demo: a small model, and tiers that fill within seconds. `disk_path` is the file of the disk tier.
[[nodiscard]] ManagerConfig demo_config(const std::string& disk_path);

// Runs until `stop` is set; then tells the probes, waits for copies in flight and ends. Says on `out` where it listens.
[[nodiscard]] Status run_serve(const ServeOptions& options, std::ostream& out, const std::atomic<bool>& stop);

}  // namespace cairn::cli
