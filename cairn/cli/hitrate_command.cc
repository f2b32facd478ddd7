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
      "hitrate", "Computes the hit rate of each eviction policy on a trace, for caches of several sizes");
  command->add_option("traces", options->traces, "Trace files in Mooncake's JSONL format, optionally gzipped")
      ->required()
      ->type_name("TRACE");
  command
      ->add_option("--policy", options->policies,
                   "all, or a list of: " + policy_names() +
                       ", and the bounds opt (knows the future), opt-insert (the same, but keeps the blocks of a "
                       "request until the "
                       "next one, as policies must), infinite")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command
      ->add_option("--capacity", options->capacities,
                   "Cache sizes: in bytes (64GB), in blocks (4096), or as a share of the trace's distinct blocks (5%)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--tiers", options->tiers, "Sizes of lower tiers; a block that one tier evicts moves to the next")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option(
          "--admit", options->admit,
          "Blocks that lower tiers admit: all; likely: those likely to be read again there; twice: of these, those "
          "used at least twice")
      ->capture_default_str();
  command->add_flag(
      "--hints", options->hints,
      "Give policies the hints that an engine could give: system prompts, when a session returns, when it ends");
  command->add_flag("--endings", options->endings,
                    "Tell policies how each request ended, as the field `ending` of the trace says: tool_call, "
                    "end_of_turn, length or abort");
  command->add_flag("--bypass", options->bypass,
                    "Let the blocks of a request take no room while it runs, and keep them afterwards only if they are "
                    "worth more than what they would displace, here and in lower tiers; opt has the same freedom");
  command->add_flag("--leaves-first", options->leaves_first,
                    "Evict a block only after all blocks that continue its prefix");
  command
      ->add_option(
          "--block-size", options->block_size,
          "Tokens per block of the trace. Blocks are not split: cairn replay and a manager have smaller ones, so "
          "compare sizes in tokens or GB")
      ->capture_default_str();
  command
      ->add_option("--kv-bytes", options->kv_bytes, "KV bytes per token, to convert blocks to GB, as in cairn replay")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--json", options->json, "Write the rows as JSON to this file; - for standard output");
  command->add_option("--html", options->html, "Write a page with the curves to this file")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  cairn hitrate chat.jsonl                                  every policy, five sizes\n"
      "  cairn hitrate a.jsonl b.jsonl.gz --policy lru,opt --capacity 64GB,256GB,1TB\n"
      "  cairn hitrate chat.jsonl --policy lru,adaptive --hints    with the hints an engine could give\n"
      "  cairn hitrate agents.jsonl --endings --bypass             what both are worth\n"
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
