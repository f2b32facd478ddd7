// The part of ProcessRanks that runs in a rank's process.
#include <utility>

#include "cairn/base/str_cat.h"
#include "examples/engine/process_ranks.h"
#include "examples/engine/step_message.h"

namespace cairn::engine {
namespace {

Status run_step(Channel& channel, ModelShard& shard, std::span<const std::byte> bytes) {
  const Result<StepInput> input = read_step(bytes);
  if (!input) {
    return Unexpected(input.error());
  }
  shard.begin(*input);
  for (std::uint32_t layer = 0; layer < shard.config().layers; ++layer) {
    const MessageWriter part = write_values(shard.attend(layer));
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
    shard.finish_layer(layer, *heads);
  }
  // One rank's samples are enough: all have the same.
  const std::vector<Sample> samples = shard.heads().first_kv_head == 0 ? shard.samples() : std::vector<Sample>();
  const MessageWriter answer = write_values(std::span(samples));
  return channel.send(MessageKind::kSamples, answer.bytes());
}

}  // namespace

Status serve_rank(int socket, std::uint32_t rank) {
  Channel channel(socket, std::chrono::seconds(0));
  const auto first = channel.receive(MessageKind::kConfig);
  if (!first) {
    return Unexpected(first.error());
  }
  MessageReader reader(*first);
  const auto config = reader.get<RankConfig>();
  if (!reader.complete() || rank >= config.ranks) {
    return fail(ErrorCode::kCorrupt, "the engine's first message does not decode");
  }
  ModelShard shard(config.model, rank, config.ranks, config.device_blocks);
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
    if (Status ran = run_step(channel, shard, message->bytes); !ran) {
      return ran;
    }
  }
}

}  // namespace cairn::engine
