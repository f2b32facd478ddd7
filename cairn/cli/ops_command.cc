// The options of `cairn ops`.
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/ops.h"

namespace cairn::cli {

namespace {

// `file` may be "-", for standard input.
int run_ops_of(const std::string& file, const std::string& profile) {
  const std::optional<sim::Profile> kind = sim::parse_profile(profile);
  if (!kind) {
    std::cerr << "cairn ops: unknown profile '" << profile << "' (expected seed or strict)\n";
    return 2;
  }
  if (file == "-") {
    std::ios::sync_with_stdio(false);
    return finish("ops", run_ops({.profile = *kind}, std::cin, std::cout), 2);
  }
  std::ifstream script(file);
  if (!script) {
    std::cerr << "cairn ops: cannot open " << file << ": " << std::strerror(errno) << "\n";
    return 1;
  }
  return finish("ops", run_ops({.profile = *kind}, script, std::cout), 2);
}

}  // namespace

void add_ops(CLI::App& app, Chosen& chosen) {
  const auto file = std::make_shared<std::string>("-");
  const auto profile = std::make_shared<std::string>(sim::to_string(OpsOptions().profile));
  CLI::App* command = app.add_subcommand(
      "ops", "Runs a script of JSON operations on a simulated KvManager, and prints one JSON answer per line");
  command->add_option("FILE", *file, "The script; - for standard input")->capture_default_str();
  command
      ->add_option("--profile", *profile,
                   "seed: answers as the original simulator did, with its flaws; strict: corrected")
      ->capture_default_str();
  command->add_flag("--json")->description("Accepted for uniformity: the output is JSON anyway");
  command->footer(
      "Operations: config, new, alloc, push, preempt, free, use, deref, cost. An invalid line ends the script with an\n"
      "error that names the line, and exit status 2.\n\n"
      "Example:\n"
      "  cairn ops <<'END'\n"
      "  {\"op\":\"config\",\"capacity\":8,\"block_size\":4,\"eviction\":\"lineage\"}\n"
      "  {\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1,2,3,4,5,6]}\n"
      "  {\"op\":\"alloc\",\"seq\":\"a\",\"tokens\":6}\n"
      "  {\"op\":\"push\",\"seq\":\"a\",\"token\":7}\n"
      "  {\"op\":\"free\",\"seq\":\"a\"}\n"
      "  END");
  command->callback([=, &chosen] { chosen = [=] { return run_ops_of(*file, *profile); }; });
}

}  // namespace cairn::cli
