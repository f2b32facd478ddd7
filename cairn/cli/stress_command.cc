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
#include "cairn/cli/stress.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/hash/sha256_digest.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

namespace {

struct StressCommand {
  StressOptions options = {};
  ConfigSources config = {};
};

// Stands for a file in a temporary folder.
constexpr std::string_view kScratch = "scratch";

// The configuration of the small model. A tier that --set gives a size has no blocks.
ManagerConfig defaults_for(const std::vector<std::string>& settings) {
  ManagerConfig config = stress_config();
  config.disk.path = kScratch;
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
  command.config.defaults = defaults_for(command.config.settings);
  Result<ManagerConfig> config = read_config(command.config);
  if (!config) {
    return finish("stress", Unexpected(std::move(config).error()), 2);
  }
  if (!config->model.groups.empty()) {
    return finish(
        "stress",
        fail(ErrorCode::kInvalidArgument, "model.groups is given, but the traffic has one block table; remove it"), 2);
  }
  command.options.config = *std::move(config);
  ModelConfig& model = command.options.config.model;
  if (command.options.config.remote.is_there() && model.secret.empty() && model.secret_file.empty()) {
    // Keys of this run only: the blocks of other runs have other contents.
    Digest random;
    internal::fill_random(random.bytes);
    model.secret = random.to_hex();
  }
  DiskConfig& disk = command.options.config.disk;
  std::string scratch;  // the temporary folder, if there is one
  if (disk.is_there() && (disk.path.empty() || disk.path == kScratch)) {
    scratch = std::filesystem::temp_directory_path() / str_cat("cairn-stress-", command.options.seed, "-XXXXXX");
    if (mkdtemp(scratch.data()) == nullptr) {
      return finish("stress",
                    fail(ErrorCode::kIo, str_cat("cannot create the folder ", scratch,
                                                 " for the disk tier; choose a file with --set disk.path=FILE")));
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
  CLI::App* command =
      app.add_subcommand("stress", "Runs mixed traffic on real tiers, and verifies every byte that comes back");
  command->add_option("--config", stress->config.file, "Configuration of the manager; without it, a small model")
      ->type_name("FILE.toml");
  command->add_option("--set", stress->config.settings, "Sets one key (see cairn config); can be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--seconds", options.seconds, "How long to run; 0 to only verify what --resume finds")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Requests at the same time (threads)")->capture_default_str();
  command->add_option("--sequences", options.sequences, "Number of different sequences that requests use")
      ->capture_default_str();
  command->add_option("--longest", options.longest, "Blocks of the longest sequence")->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the random requests and faults")->capture_default_str();
  command->add_flag("--resume", options.resume,
                    "First open the disk tier of an earlier run, and verify all its blocks");
  command->add_option("--faults", options.faults, "Share of copied blocks that fail, are cut short, come late or hang")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  command->add_flag("--steady", options.steady, "Only load and register; do not reset, pause or resize anything");
  command->add_flag("--json", options.json, "Print the report as one JSON object");
  command->footer(
      "The bytes of a block are computed from its key, so that every block can be verified, also those of an earlier\n"
      "run. Shows progress on a terminal, and a report at the end; Ctrl-C ends the run early. Exits with status 1 if "
      "a\n"
      "wrong byte or a leaked block was found, 2 if the configuration is wrong.\n\n"
      "Examples:\n"
      "  cairn stress                                            ten seconds, with a temporary file as disk tier\n"
      "  cairn stress --set disk.path=/nvme/blocks --set disk.size=100GiB --set host.size=8GiB --seconds 3600\n"
      "  cairn stress --set disk.path=/nvme/blocks --resume      verifies the blocks in the file first\n"
      "  cairn stress --set remote.url=redis://127.0.0.1:6379    with a store as the lowest tier\n"
      "  cairn stress --faults 0.01 --threads 16                 with copies that fail");
  command->callback([=, &chosen] { chosen = [=] { return run_stress_of(*stress); }; });
}

}  // namespace cairn::cli
