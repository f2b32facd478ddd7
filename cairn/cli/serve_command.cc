// The options of `cairn serve`.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cli/commands.h"
#include "cairn/cli/serve.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

namespace {

struct ServeCommand {
  ServeOptions options = {};
  ConfigSources config = {};
};

int run_serve_of(ServeCommand command) {
  std::string scratch;
  command.config.environment = ManagerConfig::environment_of_process();
  if (command.options.demo) {
    scratch = std::filesystem::temp_directory_path() / "cairn-demo-XXXXXX";
    if (mkdtemp(scratch.data()) == nullptr) {
      return finish("serve", fail(ErrorCode::kIo, str_cat("cannot create the folder ", scratch, "; set TMPDIR")));
    }
    command.config.defaults = demo_config(scratch + "/blocks");
  } else {
    command.config.defaults.http.listen = kDefaultHttpAddress;
    command.config.defaults.log.level = LogLevel::kInfo;
  }
  Result<ManagerConfig> config = read_config(command.config);
  int status = 2;
  if (!config) {
    status = finish("serve", Unexpected(std::move(config).error()), 2);
  } else {
    command.options.config = *std::move(config);
    // A file that does not name them gets the defaults of this command, too.
    HttpConfig& http = command.options.config.http;
    http.listen = http.listen.empty() ? kDefaultHttpAddress : http.listen;
    const Status done = run_serve(command.options, std::cout, stop_on_interrupt());
    status = finish("serve", done, done || done.error().code != ErrorCode::kInvalidArgument ? 1 : 2);
  }
  if (!scratch.empty()) {
    std::filesystem::remove_all(scratch);
  }
  return status;
}

}  // namespace

void add_serve(CLI::App& app, Chosen& chosen) {
  const auto serve = std::make_shared<ServeCommand>();
  CLI::App* command = app.add_subcommand("serve", "Runs a manager in a process of its own, with API and dashboard");
  command->add_option("--config", serve->config.file, "Configuration of the manager")->type_name("FILE.toml");
  command->add_option("--set", serve->config.settings, "Sets one key (see cairn config); can be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--demo", serve->options.demo, "Small tiers in a temporary folder, and simulated engines");
  command->add_option("--engines", serve->options.engines, "Simulated engines of --demo")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_flag("--json", serve->options.json, "Say where it listens as one JSON object");
  command->footer(
      "Opens the host and disk tiers of the configuration and serves status, metrics, incidents, resets and the\n"
      "dashboard over HTTP (http.listen, 127.0.0.1:9470 unless it is set). The device tier is left out: it is the "
      "engine's.\n"
      "Incidents and changes go to standard error as [log] says.\n"
      "Today it looks after a disk tier while no engine runs: verifies its blocks (disk.scrub_rate), shows what it\n"
      "holds, resets or invalidates it. Engines cannot attach to it yet; an engine opens the same port itself if its\n"
      "configuration has http.listen. SIGTERM waits for copies in flight, at most `shutdown`.\n\n"
      "Examples:\n"
      "  cairn serve --demo                                      something to see: http://127.0.0.1:9470/\n"
      "  cairn serve --config cairn.toml                         the tiers of a file\n"
      "  cairn serve --config cairn.toml --set http.listen=0.0.0.0:9470 --set http.token_file=/etc/cairn/token");
  command->callback([=, &chosen] { chosen = [=] { return run_serve_of(*serve); }; });
}

}  // namespace cairn::cli
