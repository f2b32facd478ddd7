#include "examples/engine/serving.h"

#include <bit>
#include <chrono>
#include <thread>
#include <utility>

#include "examples/engine/random.h"

namespace cairn::engine {
namespace {

// Time between two polls of copies, while there is nothing to compute.
constexpr std::chrono::microseconds kCopiesTake(200);

// The turns of one round, in order of conversation; `said` is the text of each conversation so far.
std::vector<Request> make_round(std::span<const Conversation> workload, std::size_t turn, std::uint32_t first_id,
                                std::span<const std::vector<TokenId>> said) {
  std::vector<Request> round;
  for (std::size_t i = 0; i < workload.size() && turn < workload[i].turns.size(); ++i) {
    const Turn& now = workload[i].turns[turn];
    Request& request = round.emplace_back();
    request.id = first_id + static_cast<std::uint32_t>(i);
    request.tokens = said[i];
    request.tokens.insert(request.tokens.end(), now.said.begin(), now.said.end());
    request.prompt_tokens = request.tokens.size();
    request.max_new_tokens = now.max_new_tokens;
  }
  return round;
}

Status serve(std::vector<Request>& round, Scheduler& scheduler, Ranks& ranks) {
  for (Request& request : round) {
    if (Status submitted = scheduler.submit(&request); !submitted) {
      return submitted;
    }
  }
  while (!scheduler.idle()) {
    const Result<const StepInput*> step = scheduler.schedule();
    if (!step) {
      return Unexpected(step.error());
    }
    const Result<StepOutput> output = ranks.run(**step);
    if (!output) {
      return Unexpected(output.error());
    }
    scheduler.update(*output);
    if ((*step)->rows.empty()) {
      std::this_thread::sleep_for(kCopiesTake);
    }
  }
  return {};
}

void count(const Request& request, RunFigures& figures) {
  ++figures.requests;
  figures.prompt_tokens += request.prompt_tokens;
  figures.generated_tokens += request.generated.size();
  for (const Sample& sample : request.generated) {
    figures.token_digest = Random(figures.token_digest ^ sample.token).next();
    figures.logit_digest = Random(figures.logit_digest ^ std::bit_cast<std::uint32_t>(sample.logit)).next();
  }
}

}  // namespace

Result<RunFigures> run_workload(std::span<const Conversation> workload, Scheduler& scheduler, Ranks& ranks,
                                bool drop_device) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::vector<TokenId>> said;
  for (const Conversation& conversation : workload) {
    said.push_back(conversation.system_prompt);
  }
  RunFigures figures;
  for (std::size_t turn = 0; !workload.empty() && turn < workload[0].turns.size(); ++turn) {
    std::vector<Request> round = make_round(workload, turn, static_cast<std::uint32_t>(figures.requests), said);
    if (Status served = serve(round, scheduler, ranks); !served) {
      return Unexpected(served.error());
    }
    for (std::size_t i = 0; i < round.size(); ++i) {
      count(round[i], figures);
      said[i] = round[i].tokens;
    }
    if (drop_device) {
      scheduler.forget_device();
    }
  }
  figures.scheduler = scheduler.figures();
  figures.tiers = scheduler.tier_figures();
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return figures;
}

}  // namespace cairn::engine
