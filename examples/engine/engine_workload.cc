#include "examples/engine/engine_workload.h"

#include "examples/engine/random.h"

namespace cairn::engine {
namespace {

std::vector<TokenId> some_tokens(Random& random, std::uint32_t count, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = random.between(1, vocabulary - 1);
  }
  return tokens;
}

}  // namespace

std::vector<Conversation> make_workload(const WorkloadConfig& config) {
  Random random(config.seed);
  std::vector<std::vector<TokenId>> system_prompts;
  for (std::uint32_t i = 0; i < config.system_prompts; ++i) {
    system_prompts.push_back(some_tokens(random, random.between(50, 100), config.vocabulary));
  }
  std::vector<Conversation> conversations((config.requests + config.turns - 1) / config.turns);
  for (Conversation& conversation : conversations) {
    conversation.system_prompt = system_prompts[random.between(0, config.system_prompts - 1)];
  }
  // Turn by turn, so that only the last turn is missing from some conversations.
  for (std::uint32_t request = 0; request < config.requests; ++request) {
    const std::uint32_t said = random.between(8, 40);
    conversations[request % conversations.size()].turns.push_back(
        {some_tokens(random, said, config.vocabulary), random.between(8, 40)});
  }
  return conversations;
}

}  // namespace cairn::engine
