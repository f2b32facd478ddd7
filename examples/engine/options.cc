#include "examples/engine/options.h"

#include <charconv>
#include <functional>
#include <limits>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn::engine {
namespace {

// One option: its name, and what is done with its value. A switch has no value.
struct Option {
  std::string_view name;
  std::function<Status(std::string_view)> take;
  bool is_switch = false;
};

template <typename Number>
Option number(std::string_view name, Number& into, Number lowest, Number highest = std::numeric_limits<Number>::max()) {
  return {name, [=, &into](std::string_view text) -> Status {
            Number value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) {
              return fail(ErrorCode::kInvalidArgument,
                          str_cat(name, " ", text, ": give a whole number from ", lowest, " to ", highest));
            }
            into = value;
            return {};
          }};
}

Option toggle(std::string_view name, bool& into) {
  return {name,
          [&into](std::string_view) -> Status {
            into = true;
            return {};
          },
          true};
}

std::vector<Option> table_of(Options& options) {
  constexpr std::uint32_t kMany = 1'000'000;
  return {number<std::uint32_t>("--requests", options.requests, 1, kMany),
          number<std::uint32_t>("--turns", options.turns, 1, 8),
          number<std::uint32_t>("--ranks", options.ranks, 1, 4),
          toggle("--processes", options.processes),
          number<std::uint32_t>("--device-blocks", options.device_blocks, 1, kMany),
          number<std::uint32_t>("--step-tokens", options.step_tokens, 1, kMany),
          number<std::uint64_t>("--seed", options.seed, 0),
          toggle("--drop-device", options.drop_device),
          toggle("--json", options.json),
          toggle("--help", options.help),
          {"--rank", [&options](std::string_view text) -> Status {
             options.rank = 0;
             return number<std::uint32_t>("--rank", *options.rank, 0, 3).take(text);
           }}};
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  const std::vector<Option> table = table_of(options);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    const Option* option = nullptr;
    for (const Option& known : table) {
      option = known.name == name ? &known : option;
    }
    if (option == nullptr) {
      return fail(ErrorCode::kInvalidArgument, str_cat("there is no option ", name, "; --help lists them"));
    }
    if (!option->is_switch && i + 1 == arguments.size()) {
      return fail(ErrorCode::kInvalidArgument, str_cat(name, " wants a value after it; --help says which"));
    }
    if (Status taken = option->take(option->is_switch ? std::string_view() : arguments[++i]); !taken) {
      return Unexpected(taken.error());
    }
  }
  if (options.ranks == 3) {
    return fail(ErrorCode::kInvalidArgument, "--ranks 3: the model has 4 KV heads, which 1, 2 or 4 ranks can share");
  }
  return options;
}

std::string_view help_text() {
  return R"(example_engine: a small inference engine that serves conversations and says what it did.

  example_engine [OPTION...]

What is generated depends on the seed, the number of requests and turns alone. The digests at the end of the report show
it: run with other ranks, blocks or step sizes, and they stay as they are.

What is served
  --requests N       turns of conversations to answer (24)
  --turns N          turns of each conversation, 1 to 8 (4); each prompt repeats all that was said before
  --seed S           draws the model's weights and the conversations (1)

How it is served
  --ranks N          ranks that share the model's heads: 1, 2 or 4 (1); more than one are processes
  --processes        also a single rank is a process of its own
  --device-blocks N  blocks of 16 tokens that the device has (64); few of them make requests wait and start over
  --step-tokens N    the most tokens that one step computes (64)
  --drop-device      forget what the device has cached after each round of turns

What is printed
  --json             the same figures as one JSON object
  --help             this text
)";
}

}  // namespace cairn::engine
