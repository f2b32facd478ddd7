// The options of `cairn stress`.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/cli/commands.h"
#include "cairn/cli/config.h"
#include "cairn/cli/stress.h"

namespace cairn::cli {

namespace {

struct StressCommand {
  StressOptions options = {};
  ConfigOptions config = {};
};

// The small model's blocks, but for tiers that are given a size.
ManagerConfig defaults_for(const std::vector<std::string>& settings) {
  ManagerConfig config = stress_config();
  const auto is_set = [&settings](std::string_view key) {
    return std::any_of(settings.begin(), settings.end(),
                       [key](const std::string& setting) { return setting.starts_with(key); });
  };
  const std::pair<const char*, TierConfig*> tiers[] = {
      {"device.size=", &config.device}, {"host.size=", &config.host}, {"disk.size=", &config.disk}};
  for (const auto& [key, tier] : tiers) {
    if (is_set(key)) {
      tier->blocks = 0;
    }
  }
  return config;
}

int run_stress_of(StressCommand command) {
  command.config.environment = ManagerConfig::environment_of_process();
  Result<ManagerConfig> config = read_config(command.config, defaults_for(command.config.settings));
  if (!config) {
    return finish("stress", Unexpected(std::move(config).error()), 2);
  }
  command.options.config = *std::move(config);
  DiskConfig& disk = command.options.config.disk;
  // A disk that nobody named is gone with the run.
  std::string scratch;
  if (disk.is_there() && disk.path.empty()) {
    scratch = std::filesystem::temp_directory_path() / str_cat("cairn-stress-", command.options.seed, "-XXXXXX");
    if (mkdtemp(scratch.data()) == nullptr) {
      return finish("stress", fail(ErrorCode::kIo, "cannot make a folder for the disk tier; give disk.path"), 1);
    }
    disk.path = scratch + "/blocks";
  }
  const Result<StressEnd> end = run_stress(
      command.options,
      {.out = std::cout, .log = std::cerr, .stop = stop_on_interrupt(), .log_is_a_terminal = log_is_a_terminal()});
  if (!scratch.empty()) {
    std::filesystem::remove_all(scratch);
  }
  if (!end) {
    return finish("stress", Unexpected(end.error()), 2);
  }
  return *end == StressEnd::kGood ? 0 : 1;
}

}  // namespace

void add_stress(CLI::App& app, Chosen& chosen) {
  const auto stress = std::make_shared<StressCommand>();
  StressOptions& options = stress->options;
  CLI::App* command = app.add_subcommand("stress",
                                         "Runs mixed traffic on real tiers and verifies every byte that comes back; "
                                         "exit status 1 on a wrong one, or a leaked block");
  command
      ->add_option("--config", stress->config.file, "The manager's configuration, in TOML; without one a small model")
      ->type_name("FILE.toml");
  command->add_option("--set", stress->config.settings, "One key of the configuration: `cairn config` shows them")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--seconds", options.seconds, "How long; 0: only what --resume does")->capture_default_str();
  command->add_option("--threads", options.threads, "Requests at the same time")->capture_default_str();
  command->add_option("--sequences", options.sequences, "Distinct sequences that are asked for")->capture_default_str();
  command->add_option("--longest", options.longest, "Blocks of the longest sequence")->capture_default_str();
  command->add_option("--seed", options.seed, "Of what is asked for, and of the faults")->capture_default_str();
  command->add_flag("--resume", options.resume, "Opens the disk tier that is there and verifies all of it first");
  command->add_option("--faults", options.faults, "Share of copied blocks that fail, come short, late or hang")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  command->add_flag("--steady", options.steady, "Only loads and registrations: nothing is reset, paused or resized");
  command->add_flag("--json", options.json, "Writes the report as one JSON object");
  command->footer(
      "One line a second on a terminal, the report at the end; Ctrl-C ends it early. Contents follow from keys, "
      "so\n"
      "that every block can be verified, also those of a run before.\n\n"
      "Examples:\n"
      "  cairn stress                                                   ten seconds, a scratch file for a disk\n"
      "  cairn stress --set disk.path=/nvme/blocks --set disk.size=100GiB --set host.size=8GiB --seconds 3600\n"
      "  cairn stress --set disk.path=/nvme/blocks --resume             what was in the file first\n"
      "  cairn stress --faults 0.01 --threads 16                        with copies that go wrong");
  command->callback([=, &chosen] { chosen = [=] { return run_stress_of(*stress); }; });
}

}  // namespace cairn::cli
