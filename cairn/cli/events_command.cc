// The options of `cairn events`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include "cairn/cli/commands.h"
#include "cairn/cli/event_watch.h"

namespace cairn::cli {

void add_events(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<EventsOptions>();
  CLI::App* command = app.add_subcommand("events", "Follows the KV cache events of Cairn, vLLM or SGLang");
  command->add_option("ENDPOINT", options->stream.endpoint, "Where events are published, such as tcp://localhost:5557")
      ->required();
  command
      ->add_option("--replay", options->stream.replay_endpoint,
                   "The publisher's replay endpoint: for what is cached already, and for messages that were lost")
      ->type_name("ENDPOINT");
  command->add_option("--topic", options->stream.topic, "Only messages whose topic begins with this")
      ->type_name("TEXT");
  command->add_option("--count", options->count, "End after so many batches; 0 to go on until Ctrl-C")->type_name("N");
  command->add_option("--library", options->stream.library, "Name or path of the library of ZeroMQ")
      ->capture_default_str()
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print one line of JSON for each event");
  command->footer(
      "Prints each batch with its number, its time (UTC) and its data parallel rank, and under it the events: the "
      "medium\n"
      "(GPU, CPU, STORAGE), the blocks, and the block that they follow. Waits for a publisher that is not there "
      "yet.\n\n"
      "A gap in the numbers is filled from the replay endpoint. What cannot be had is reported as lost; a publisher "
      "that\n"
      "was started again as restarted, or as a snapshot. Lines of JSON of format dynamo are printed as they come.\n\n"
      "Examples:\n"
      "  cairn events tcp://localhost:5557                                    what happens from now on\n"
      "  cairn events tcp://localhost:5557 --replay tcp://localhost:5558      what is cached, and what happens\n"
      "  cairn events tcp://localhost:5557 --json | jq 'select(.event == \"removed\")'");
  command->callback([=, &chosen] {
    chosen = [=] { return finish("events", run_events(*options, stop_on_interrupt(), std::cout)); };
  });
}

}  // namespace cairn::cli
