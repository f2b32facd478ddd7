// The options of `cairn config`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/config.h"

namespace cairn::cli {

void add_config(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ConfigOptions>();
  CLI::App* command =
      app.add_subcommand("config", "Shows what a manager is configured with, every key with what it means and may be");
  command->add_option("--file", options->file, "A configuration, in TOML")->type_name("FILE.toml");
  command->add_option("--set", options->settings, "One key, over the file and the environment")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "Writes JSON instead of TOML");
  command->footer(
      "The file goes over the defaults, variables such as CAIRN_HOST_SIZE over the file, --set over both. What is\n"
      "wrong is told by key, with exit status 2.\n\n"
      "Examples:\n"
      "  cairn config > cairn.toml                                 the defaults, to begin with\n"
      "  cairn config --file cairn.toml --set host.size=64GiB      what would come of it\n"
      "  CAIRN_BLOCK_SIZE=32 cairn config --file cairn.toml --json");
  command->callback([=, &chosen] {
    chosen = [=] {
      options->environment = ManagerConfig::environment_of_process();
      return finish("config", run_config(*options, std::cout), 2);
    };
  });
}

}  // namespace cairn::cli
