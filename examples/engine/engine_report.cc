#include "examples/engine/engine_report.h"

#include <cstdarg>
#include <cstdio>

namespace cairn::engine {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

using Count = unsigned long long;

std::string line(const char* name, std::uint64_t count, const std::string& remark = "") {
  return format("  %-18s%10llu  ", name, Count{count}) + remark + "\n";
}

std::string member(const char* name, std::uint64_t count) { return format("\"%s\":%llu,", name, Count{count}); }

}  // namespace

std::string report_text(const Options& options, const RunFigures& figures) {
  const SchedulerFigures& scheduler = figures.scheduler;
  std::string out = format("%llu requests on %s with %u device blocks\n\n", Count{figures.requests},
                           options.engine.ranks.to_string().c_str(), options.engine.device_blocks);
  out += line("prompt tokens", figures.prompt_tokens, "given");
  out += line("cached tokens", scheduler.prefix_hit_tokens,
              "found in the engine's own prefix cache, also on starting over");
  if (options.engine.has_tiers()) {
    out += line("loaded tokens", figures.tiers.loaded_tokens, "came from tiers");
    out += line("missing tokens", figures.tiers.missing_tokens, "were to come from tiers and did not");
    out += line("refused requests", figures.tiers.refused, figures.tiers.refusal);
  }
  out += line("computed tokens", scheduler.computed_tokens, "those included that were lost and computed again");
  out += line("generated tokens", figures.generated_tokens);
  out += line("steps", scheduler.steps);
  out += line("preemptions", scheduler.preemptions, "a request lost its blocks and started over");
  out += format("  %-18s%10.2f\n\n", "seconds", figures.seconds);
  out += format("  tokens digest   %016llx\n", Count{figures.token_digest});
  out += format("  logits digest   %016llx\n", Count{figures.logit_digest});
  return out;
}

std::string report_json(const Options& options, const RunFigures& figures) {
  const SchedulerFigures& scheduler = figures.scheduler;
  std::string out = "{";
  out += member("requests", figures.requests);
  out += member("ranks", options.engine.ranks.count());
  out += member("pipeline", options.engine.ranks.pipeline);
  out += member("device_blocks", options.engine.device_blocks);
  out += member("prompt_tokens", figures.prompt_tokens);
  out += member("prefix_hit_tokens", scheduler.prefix_hit_tokens);
  out += member("loaded_tokens", figures.tiers.loaded_tokens);
  out += member("missing_tokens", figures.tiers.missing_tokens);
  out += member("refused_requests", figures.tiers.refused);
  out += member("computed_tokens", scheduler.computed_tokens);
  out += member("generated_tokens", figures.generated_tokens);
  out += member("steps", scheduler.steps);
  out += member("preemptions", scheduler.preemptions);
  out += format("\"seconds\":%.3f,", figures.seconds);
  out += format("\"token_digest\":\"%016llx\",", Count{figures.token_digest});
  out += format("\"logit_digest\":\"%016llx\"}\n", Count{figures.logit_digest});
  return out;
}

}  // namespace cairn::engine
