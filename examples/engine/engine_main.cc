// example_engine: see README.md beside it, or --help.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "examples/engine/engine_report.h"
#include "examples/engine/example_engine.h"
#include "examples/engine/options.h"
#include "examples/engine/process_ranks.h"

namespace {

using namespace cairn;
using namespace cairn::engine;

int failed(const std::string& who, const Error& error) {
  std::fprintf(stderr, "%s: %s\n", who.c_str(), error.message.c_str());
  return 1;
}

void print(const Options& options, const RunFigures& figures) {
  std::fputs((options.json ? report_json(options, figures) : report_text(options, figures)).c_str(), stdout);
}

int run(const Options& options) {
  const auto first = run_engine(options.engine);
  if (!first) {
    return failed("example_engine", first.error());
  }
  print(options, *first);
  if (!options.restart) {
    return 0;
  }
  const auto second = run_engine(options.engine);
  if (!second) {
    return failed("example_engine, restarted", second.error());
  }
  if (!options.json) {
    std::puts("\nAfter a restart\n");
  }
  print(options, *second);
  const bool same = first->token_digest == second->token_digest && first->logit_digest == second->logit_digest;
  if (!same) {
    std::fputs("example_engine: the second run generated something else\n", stderr);
  }
  return same ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
  const auto options = parse_options({values + 1, values + count});
  if (!options) {
    failed("example_engine", options.error());
    return 2;
  }
  if (options->help) {
    std::fputs(std::string(help_text()).c_str(), stdout);
    return 0;
  }
  if (options->rank) {
    const Status served = serve_rank(STDIN_FILENO, *options->rank);
    return served ? 0 : failed("rank " + std::to_string(*options->rank), served.error());
  }
  return run(*options);
}
