// cairn_sim: runs simulated managers from seeds and says which seed breaks an invariant.
//
//   cairn_sim --seeds 100000              seeds 1 to 100,000
//   cairn_sim --first 4711 --seeds 1 --verbose    one of them, every step shown
//   cairn_sim --scenario grids            leaders with random grids of ranks
//   cairn_sim --scenario restarts         schedulers and ranks that die and are started again, instead of managers
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>

#include "tests/simulation/grid_world_testing.h"
#include "tests/simulation/restart_world_testing.h"
#include "tests/simulation/world_testing.h"

namespace {

int run_restarts(std::uint64_t first, std::uint64_t seeds, std::uint32_t steps, bool verbose) {
  cairn::testing::RestartCounts all;
  std::uint64_t broken = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    cairn::testing::RestartWorld world({.seed = seed, .steps = steps, .log = verbose ? &std::cout : nullptr});
    if (const std::string failure = world.run(); !failure.empty()) {
      ++broken;
      std::cout << "seed " << seed << ": " << failure << "\n";
    }
    all += world.counts();
  }
  std::cout << seeds << " seeds, " << broken << " broken; " << all.schedulers << " schedulers and " << all.ranks
            << " ranks started again, " << all.binds << " steps, " << all.refused << " of replaced schedulers refused, "
            << all.retried << " that waited, " << all.saved << " saves done, " << all.failed << " failed, "
            << all.events_failed << " device events failed\n";
  return broken == 0 ? 0 : 1;
}

int run_grids(std::uint64_t first, std::uint64_t seeds, std::uint32_t steps, bool verbose) {
  cairn::testing::GridCounts all;
  std::uint64_t broken = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    std::string folder = std::filesystem::temp_directory_path() / "cairn-sim-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
      std::cerr << "cannot make a folder in " << std::filesystem::temp_directory_path() << "\n";
      return 2;
    }
    {
      cairn::testing::GridWorld world(
          {.seed = seed, .steps = steps, .folder = folder, .log = verbose ? &std::cout : nullptr});
      if (const std::string failure = world.run(); !failure.empty()) {
        ++broken;
        std::cout << "seed " << seed << ": " << failure << "\n";
      }
      all += world.counts();
    }
    std::filesystem::remove_all(folder);
  }
  std::cout << seeds << " seeds, " << broken << " broken; " << all.replicas << " grids with replicas, " << all.stages
            << " with several stages, " << all.reshards << " after resharding, " << all.moved << " blocks moved, "
            << all.deaths << " ranks died, " << all.in_flight << " of them with a transfer in flight, " << all.failed
            << " blocks failed without them, " << all.struck << " by faults, " << all.stale << " stale ones refused\n";
  return broken == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs simulated managers in virtual time, with everything drawn from a seed. Exits with 1 if a seed fails."};
  std::uint64_t first = 1;
  std::uint64_t seeds = 1000;
  std::uint32_t steps = 120;
  bool verbose = false;
  app.add_option("--first", first, "The first seed")->capture_default_str();
  app.add_option("--seeds", seeds, "Number of seeds")->capture_default_str();
  app.add_option("--steps", steps, "Steps of each seed")->capture_default_str();
  std::string scenario = "manager";
  app.add_option("--scenario", scenario,
                 "manager: tiers with faults; restarts: schedulers and ranks that die and start again; grids: ranks of "
                 "random grids")
      ->check(CLI::IsMember({"manager", "restarts", "grids"}))
      ->capture_default_str();
  app.add_flag("--verbose", verbose, "Print every step");
  CLI11_PARSE(app, argc, argv);
  if (scenario == "restarts") {
    return run_restarts(first, seeds, steps, verbose);
  }
  if (scenario == "grids") {
    return run_grids(first, seeds, steps, verbose);
  }
  std::string folder = std::filesystem::temp_directory_path() / "cairn-sim-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "cannot make a folder in " << std::filesystem::temp_directory_path() << "\n";
    return 2;
  }
  cairn::testing::WorldCounts all;
  std::uint64_t broken = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    std::filesystem::remove(folder + "/blocks");
    cairn::testing::World world(
        {.seed = seed, .steps = steps, .folder = folder, .log = verbose ? &std::cout : nullptr});
    const std::string failure = world.run();
    all += world.counts();
    if (!failure.empty()) {
      ++broken;
      std::cout << "seed " << seed << ": " << failure << "\n";
    }
    if (isatty(STDERR_FILENO) == 1 && seed % 100 == 0) {
      std::cerr << "\r" << seed - first + 1 << " of " << seeds << std::flush;
    }
  }
  std::filesystem::remove_all(folder);
  std::cout << seeds << " seeds, " << broken << " broken; " << all.loads << " loads, " << all.blocks_served
            << " blocks served, " << all.from_below << " of them from lower tiers, " << all.copied_down
            << " copied down, " << all.mismatches << " wrong ones detected, " << all.expired << " late, "
            << all.tiers_out << " tiers suspended, " << all.restarts << " restarts, " << all.kills << " kills, "
            << all.files_damaged << " damaged files, " << all.scrubbed << " blocks scrubbed out, " << all.fences
            << " resets of everything, " << all.fences_in_copies << " of them within a copy, " << all.fenced_blocks
            << " blocks in flight, " << all.fenced_loads << " loads, " << all.fenced_in_use << " blocks in use and "
            << all.fenced_private << " runs not registered yet at a reset\n";
  return broken == 0 ? 0 : 1;
}
