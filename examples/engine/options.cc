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

Option text(std::string_view name, std::string& into) {
  return {name, [&into](std::string_view value) -> Status {
            into = value;
            return {};
          }};
}

Option share(std::string_view name, double& into) {
  return {name, [=, &into](std::string_view value) -> Status {
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), into);
            if (error != std::errc() || end != value.data() + value.size() || !(into >= 0 && into <= 1)) {
              return fail(ErrorCode::kInvalidArgument, str_cat(name, " ", value, ": give a share from 0 to 1"));
            }
            return {};
          }};
}

Option load_mode(std::string_view name, LoadMode& into) {
  return {name, [=, &into](std::string_view value) -> Status {
            if (value != "async" && value != "in-step") {
              return fail(ErrorCode::kInvalidArgument, str_cat(name, " ", value, ": give async or in-step"));
            }
            into = value == "async" ? LoadMode::kAsync : LoadMode::kInStep;
            return {};
          }};
}

Option model(std::string_view name, EngineModel& into) {
  return {name, [=, &into](std::string_view value) -> Status {
            if (value != "grouped" && value != "few-heads" && value != "mla") {
              return fail(ErrorCode::kInvalidArgument, str_cat(name, " ", value, ": give grouped, few-heads or mla"));
            }
            into = value == "grouped"     ? EngineModel::kGrouped
                   : value == "few-heads" ? EngineModel::kFewHeads
                                          : EngineModel::kMla;
            return {};
          }};
}

std::vector<Option> table_of(Options& options) {
  constexpr std::uint32_t kMany = 1'000'000;
  EngineConfig& engine = options.engine;
  return {number<std::uint32_t>("--requests", engine.workload.requests, 1, kMany),
          number<std::uint32_t>("--turns", engine.workload.turns, 1, 8),
          number<std::uint64_t>("--seed", engine.workload.seed, 0),
          model("--model", engine.model),
          number<std::uint32_t>("--ranks", engine.ranks.tensor, 1, 4),
          number<std::uint32_t>("--tensor", engine.ranks.tensor, 1, 4),
          number<std::uint32_t>("--pipeline", engine.ranks.pipeline, 1, 4),
          toggle("--processes", engine.processes),
          number<std::uint32_t>("--device-blocks", engine.device_blocks, 1, kMany),
          number<std::uint32_t>("--step-tokens", engine.step_tokens, 1, kMany),
          toggle("--drop-device", engine.drop_device),
          number<std::uint32_t>("--host-blocks", engine.host_blocks, 1, kMany),
          number<std::uint64_t>("--host-size", engine.host_size, 1),
          text("--disk", engine.disk),
          number<std::uint32_t>("--disk-blocks", engine.disk_blocks, 1, kMany),
          number<std::uint64_t>("--disk-size", engine.disk_size, 1),
          load_mode("--load", engine.load),
          number<std::uint32_t>("--in-step-save-blocks", engine.in_step_save_blocks, 0, kMany),
          share("--faults", engine.faults),
          toggle("--restart", options.restart),
          toggle("--json", options.json),
          toggle("--help", options.help),
          {"--rank", [&options](std::string_view value) -> Status {
             options.rank = 0;
             return number<std::uint32_t>("--rank", *options.rank, 0, 15).take(value);
           }}};
}

// Contradictions between options.
Status check(const Options& options) {
  const EngineConfig& engine = options.engine;
  if (engine.ranks.tensor == 3) {
    return fail(ErrorCode::kInvalidArgument,
                "--tensor 3: the model has 8 query heads, which 1, 2 or 4 ranks can share");
  }
  if (options.restart && engine.disk.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--restart shows what is left on disk: give --disk PATH too");
  }
  if (engine.faults > 0 && !engine.has_tiers()) {
    return fail(ErrorCode::kInvalidArgument,
                "--faults strikes copies from and to tiers: give --host-blocks, --host-size or --disk too");
  }
  return {};
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
  options.engine.processes |= options.engine.ranks.count() > 1;
  if (Status checked = check(options); !checked) {
    return Unexpected(checked.error());
  }
  return options;
}

std::string_view help_text() {
  return R"(example_engine: a small inference engine that serves conversations and prints a report.

  example_engine [OPTION...]

The output depends only on the seed, the model and the number of requests and turns. The digests at the end of the report
show it: they are the same with other ranks, blocks, tiers or faults.

Workload
  --requests N       turns of conversations to answer (24)
  --turns N          turns of each conversation, 1 to 8 (4); each prompt repeats the conversation so far
  --seed S           draws the model's weights, the conversations and the faults (1)

Engine
  --model MODEL      grouped: 4 KV heads (the default); few-heads: 2, which four ranks hold twice; mla: one tensor for keys
                     and values, which every rank of a stage holds
  --tensor N         ranks that share the model's heads: 1, 2 or 4 (1); if there are several ranks, they are processes
  --pipeline N       stages that share the model's 4 layers: 1 to 4 (1), each with as many ranks as --tensor says
  --ranks N          the same as --tensor N
  --processes        run also a single rank as a process
  --device-blocks N  blocks of 16 tokens that the device has (64); with few of them requests are preempted
  --step-tokens N    the most tokens that one step computes (64)
  --drop-device      empty the device's prefix cache after each round of turns

Tiers of Cairn, for keys and values beyond the device
  --host-blocks N    a tier of that many blocks in host memory
  --host-size BYTES  the same as the bytes that it takes on all ranks together
  --disk PATH        a tier in files that begin with this path; they stay, and the next run uses their blocks
  --disk-blocks N    blocks of that tier (4096)
  --disk-size BYTES  the same as the bytes that its files take together
  --load MODE        async: a request waits for its blocks (the default); in-step: it computes while its layers arrive
  --in-step-save-blocks N  a request that fills so many blocks in a step is saved while the step computes (8); 0: never
  --faults SHARE     share of copied blocks that fail, are late or have wrong bytes, such as 0.05
  --restart          run twice on the same disk, and compare

Report
  --json             the same figures as one JSON object
  --help             this text

Examples
  example_engine --device-blocks 30                                   requests are preempted, and compute their blocks again
  example_engine --device-blocks 30 --host-blocks 500                 preempted blocks are loaded from host memory
  example_engine --ranks 4 --disk /tmp/kv --restart --faults 0.05     four processes, a restart, and copies that fail
  example_engine --model mla --tensor 2 --pipeline 2 --host-blocks 99 a grid of ranks; the ranks of a stage share their blocks
)";
}

}  // namespace cairn::engine
