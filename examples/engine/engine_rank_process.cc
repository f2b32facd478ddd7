// The part of ProcessRanks that runs in a rank's process.
#include <utility>

#include "cairn/base/str_cat.h"
#include "examples/engine/process_ranks.h"
#include "examples/engine/step_message.h"

namespace cairn::engine {
namespace {

// What a stage makes goes to the next one.
Status take_hidden(Channel& channel, ModelShard& shard) {
  const auto message = channel.receive(MessageKind::kHidden);
  if (!message) {
    return Unexpected(message.error());
  }
  const auto hidden = read_values<float>(*message);
  if (!hidden) {
    return Unexpected(hidden.error());
  }
  shard.set_hidden(*hidden);
  return {};
}

Status run_layers(Channel& channel, Rank& rank) {
  for (std::uint32_t layer = 0; layer < rank.shard().part().layers.count; ++layer) {
    const MessageWriter part = write_values(rank.attend(layer));
    if (Status sent = channel.send(MessageKind::kHeads, part.bytes()); !sent) {
      return sent;
    }
    const auto whole = channel.receive(MessageKind::kHeads);
    if (!whole) {
      return Unexpected(whole.error());
    }
    const auto heads = read_values<float>(*whole);
    if (!heads) {
      return Unexpected(heads.error());
    }
    rank.finish_layer(layer, *heads);
  }
  return {};
}

struct Place {
  bool is_first_stage = true;
  bool sends_hidden = false;  // to the next stage
};

Status run_step(Channel& channel, Rank& rank, const Place& place, std::span<const std::byte> bytes) {
  const Result<StepInput> input = read_step(bytes);
  if (!input) {
    return Unexpected(input.error());
  }
  if (Status begun = rank.begin(*input); !begun) {
    return begun;
  }
  if (!input->rows.empty()) {
    if (Status taken = place.is_first_stage ? Status() : take_hidden(channel, rank.shard()); !taken) {
      return taken;
    }
    if (Status ran = run_layers(channel, rank); !ran) {
      return ran;
    }
    if (place.sends_hidden) {
      const MessageWriter hidden = write_values(rank.shard().hidden());
      if (Status sent = channel.send(MessageKind::kHidden, hidden.bytes()); !sent) {
        return sent;
      }
    }
  }
  const MessageWriter answer = write_output(rank.end());
  return channel.send(MessageKind::kOutput, answer.bytes());
}

}  // namespace

Status serve_rank(int socket, std::uint32_t number) {
  Channel channel(socket, std::chrono::seconds(0));
  const auto first = channel.receive(MessageKind::kConfig);
  if (!first) {
    return Unexpected(first.error());
  }
  const auto config = read_config(*first);
  if (!config) {
    return Unexpected(config.error());
  }
  const auto rank = Rank::make(*config, number, nullptr);
  if (!rank) {
    return Unexpected(rank.error());
  }
  if (Status sent = channel.send(MessageKind::kReady, {}); !sent) {
    return sent;
  }
  const RankGrid& grid = config->ranks;
  const std::uint32_t stage = grid.stage_of(number);
  const Place place{.is_first_stage = stage == 0,
                    .sends_hidden = stage + 1 < grid.pipeline && grid.tensor_rank_of(number) == 0};
  while (true) {
    const Result<Message> message = channel.receive();
    if (!message) {
      return Unexpected(message.error());
    }
    if (message->kind == MessageKind::kStop) {
      return channel.send(MessageKind::kStopped, {});
    }
    if (message->kind != MessageKind::kStep) {
      return fail(ErrorCode::kCorrupt, "the engine sent something that is no step");
    }
    if (Status ran = run_step(channel, **rank, place, message->bytes); !ran) {
      return ran;
    }
  }
}

}  // namespace cairn::engine
