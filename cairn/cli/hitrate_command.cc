// The options of `cairn hitrate`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/hitrate.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

void add_hitrate(CLI::App& app, const std::string& words, Chosen& chosen) {
  const auto options = std::make_shared<HitrateOptions>();
  CLI::App* command = app.add_subcommand(
      "hitrate", "Runs traces through caches of several sizes and shows what each eviction policy would have hit");
  command->add_option("traces", options->traces, "Files in Mooncake's JSONL, compressed with gzip or not")
      ->required()
      ->type_name("TRACE");
  command->add_option("--policy", options->policies, "all, or some of: " + policy_names() + ", opt, infinite")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--capacity", options->capacities, "Blocks, or shares of the distinct blocks of a trace")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command
      ->add_option("--tiers", options->tiers,
                   "Capacities of the tiers below: what one evicts goes to the next, where it is looked for")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option(
          "--admit", options->admit,
          "What lower tiers take: all; likely: what is likely to be read again there; twice: of that, what was "
          "used twice")
      ->capture_default_str();
  command->add_flag("--hints", options->hints,
                    "Policies are told what an engine could know: system prompts, when a session returns, its end");
  command->add_flag("--leaves-first", options->leaves_first, "No block goes before those below it");
  command->add_option("--block-size", options->block_size, "Tokens that one id of the trace stands for")
      ->capture_default_str();
  command->add_option("--json", options->json, "Writes the rows to this file; - is standard output");
  command->add_option("--html", options->html, "Writes a page with the curves to this file")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  cairn hitrate chat.jsonl                                  every policy, five sizes\n"
      "  cairn hitrate a.jsonl b.jsonl.gz --policy lru,opt --capacity 4096,16384\n"
      "  cairn hitrate chat.jsonl --policy lru,adaptive --hints    with what an engine could have said\n"
      "  cairn hitrate chat.jsonl --capacity 2% --tiers 20%        a small tier above a large one\n"
      "  cairn hitrate chat.jsonl --json rows.json                 for a program to read\n"
      "  cairn hitrate chat.jsonl --html curves.html               for people to look at");
  command->callback([=, &chosen] {
    chosen = [=] {
      options->command = words;
      return finish(
          "hitrate",
          run_hitrate(*options, {.out = std::cout, .log = std::cerr, .log_is_a_terminal = log_is_a_terminal()}));
    };
  });
}

}  // namespace cairn::cli
