// The options of `cairn config`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include "cairn/cli/commands.h"
#include "cairn/cli/config.h"

namespace cairn::cli {

void add_config(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ConfigOptions>();
  CLI::App* command = app.add_subcommand("config", "Checks a configuration, and explains every key");
  command->add_option("--file", options->sources.file, "Configuration file; without it, the defaults")
      ->type_name("FILE.toml");
  command->add_option("--set", options->sources.settings, "Sets one key, such as host.size=64GiB; can be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "Print JSON instead of TOML");
  command->footer(
      "Prints the configuration that results from the defaults, the file, environment variables such as\n"
      "CAIRN_HOST_SIZE, and --set; each of them overrides the ones before. If it has mistakes, lists all of them and\n"
      "exits with status 2.\n\n"
      "Examples:\n"
      "  cairn config > cairn.toml                               writes a file with all keys and their defaults\n"
      "  cairn config --file cairn.toml --set host.size=64GiB    checks a file, with one key changed\n"
      "  CAIRN_BLOCK_SIZE=32 cairn config --file cairn.toml --json");
  command->callback([=, &chosen] {
    chosen = [=] {
      options->sources.environment = ManagerConfig::environment_of_process();
      return finish("config", run_config(*options, std::cout), 2);
    };
  });
}

}  // namespace cairn::cli
