// The part of ProcessRanks that runs in a rank's process.
#include <utility>

#include "cairn/base/str_cat.h"
#include "examples/engine/process_ranks.h"
#include "examples/engine/step_message.h"

namespace cairn::engine {
namespace {

Status run_step(Channel& channel, Rank& rank, std::span<const std::byte> bytes) {
  const Result<StepInput> input = read_step(bytes);
  if (!input) {
    return Unexpected(input.error());
  }
  if (Status begun = rank.begin(*input); !begun) {
    return begun;
  }
  const std::uint32_t layers = input->rows.empty() ? 0 : rank.shard().config().layers;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
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
    if (Status ran = run_step(channel, **rank, message->bytes); !ran) {
      return ran;
    }
  }
}

}  // namespace cairn::engine
