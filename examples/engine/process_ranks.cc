#include "examples/engine/process_ranks.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "cairn/base/str_cat.h"
#include "examples/engine/step_message.h"

namespace cairn::engine {
namespace {

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return str_cat("its process was killed by signal ", WTERMSIG(status));
  }
  return str_cat("its process ended with status ", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ProcessRanks>> ProcessRanks::start(const std::string& program, const RankConfig& config,
                                                          std::chrono::seconds silence) {
  std::unique_ptr<ProcessRanks> ranks(new ProcessRanks(config));
  for (std::uint32_t rank = 0; rank < config.ranks.count(); ++rank) {
    if (Status started = ranks->start_rank(program, silence); !started) {
      return Unexpected(started.error());
    }
  }
  const MessageWriter message = write_config(config);
  if (Status sent = ranks->send_to(ranks->all(), MessageKind::kConfig, message.bytes()); !sent) {
    return Unexpected(sent.error());
  }
  if (auto ready = ranks->receive_from(ranks->all(), MessageKind::kReady); !ready) {
    return Unexpected(ready.error());
  }
  return ranks;
}

Status ProcessRanks::start_rank(const std::string& program, std::chrono::seconds silence) {
  // Both ends close on exec, so that no rank holds the socket of another open; the rank's own becomes its input.
  int sockets[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return fail(ErrorCode::kIo, str_cat("no socket for a rank: ", std::strerror(errno)));
  }
  Channel channel(sockets[0], silence);
  std::string rank = std::to_string(processes_.size());
  std::string name = program;
  std::string option = "--rank";
  char* const arguments[] = {name.data(), option.data(), rank.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(sockets[1]);
  if (error != 0) {
    return fail(ErrorCode::kUnavailable,
                str_cat("rank ", rank, " does not start as ", program, " --rank ", rank, ": ", std::strerror(error)));
  }
  processes_.push_back(process);
  channels_.push_back(std::move(channel));
  return {};
}

ProcessRanks::~ProcessRanks() {
  channels_.clear();
  for (const pid_t process : processes_) {
    if (process != 0) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }
}

Unexpected<Error> ProcessRanks::rank_failed(std::size_t rank, const Error& error) {
  std::string what = error.message;
  if (error.code == ErrorCode::kUnavailable && processes_[rank] != 0) {
    int status = 0;
    ::waitpid(processes_[rank], &status, 0);  // its end of the socket is closed: it has ended or is ending
    processes_[rank] = 0;
    what = how_it_ended(status);
  }
  return fail(error.code, str_cat("rank ", rank, " of ", config_.ranks.count(), " is lost: ", what));
}

Status ProcessRanks::send_to(const Some& ranks, MessageKind kind, std::span<const std::byte> bytes) {
  for (std::size_t rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    if (Status sent = channels_[rank].send(kind, bytes); !sent) {
      return rank_failed(rank, sent.error());
    }
  }
  return {};
}

Result<std::vector<std::vector<std::byte>>> ProcessRanks::receive_from(const Some& ranks, MessageKind kind) {
  std::vector<std::vector<std::byte>> messages;
  for (std::size_t rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    auto message = channels_[rank].receive(kind);
    if (!message) {
      return rank_failed(rank, message.error());
    }
    messages.push_back(std::move(*message));
  }
  return messages;
}

Result<StepOutput> ProcessRanks::run(const StepInput& input) {
  const MessageWriter message = write_step(input);
  if (Status sent = send_to(all(), MessageKind::kStep, message.bytes()); !sent) {
    return Unexpected(sent.error());
  }
  const std::uint32_t stages = input.rows.empty() ? 0 : config_.ranks.pipeline;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    if (Status ran = run_stage(stage, input.rows.size()); !ran) {
      return Unexpected(ran.error());
    }
  }
  const auto answers = receive_from(all(), MessageKind::kOutput);
  if (!answers) {
    return Unexpected(answers.error());
  }
  StepOutput output;
  for (const auto& answer : *answers) {
    auto part = read_output(answer);
    if (!part) {
      return Unexpected(part.error());
    }
    merge(output, std::move(*part));
  }
  return output;
}

Status ProcessRanks::run_stage(std::uint32_t stage, std::size_t rows) {
  const RankGrid& grid = config_.ranks;
  const Some ranks{std::size_t{stage} * grid.tensor, grid.tensor};
  for (std::uint32_t i = even_layers(stage, grid.pipeline, config_.model.layers).count; i > 0; --i) {
    if (Status exchanged = exchange_heads(ranks, rows); !exchanged) {
      return exchanged;
    }
  }
  if (stage + 1 == grid.pipeline) {
    return {};
  }
  const auto hidden = receive_from({ranks.first, 1}, MessageKind::kHidden);
  return hidden ? send_to({ranks.first + grid.tensor, grid.tensor}, MessageKind::kHidden, hidden->front())
                : Status(Unexpected(hidden.error()));
}

Status ProcessRanks::exchange_heads(const Some& ranks, std::size_t rows) {
  const auto messages = receive_from(ranks, MessageKind::kHeads);
  if (!messages) {
    return Unexpected(messages.error());
  }
  std::vector<std::vector<float>> parts;
  for (const auto& message : *messages) {
    auto part = read_values<float>(message);
    if (!part) {
      return Unexpected(part.error());
    }
    parts.push_back(std::move(*part));
  }
  const std::vector<float> whole = gather_heads(std::vector<std::span<const float>>(parts.begin(), parts.end()), rows);
  const MessageWriter answer = write_values(std::span(whole));
  return send_to(ranks, MessageKind::kHeads, answer.bytes());
}

Status ProcessRanks::stop() {
  if (Status sent = send_to(all(), MessageKind::kStop, {}); !sent) {
    return sent;
  }
  if (const auto stopped = receive_from(all(), MessageKind::kStopped); !stopped) {
    return Unexpected(stopped.error());
  }
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    // After its last message the rank ends, which closes the socket.
    const auto end = channels_[rank].receive();
    if (end || end.error().code != ErrorCode::kUnavailable) {
      return rank_failed(rank, end ? Error{ErrorCode::kCorrupt, "it goes on after its last message"} : end.error());
    }
    int status = 0;
    ::waitpid(processes_[rank], &status, 0);
    processes_[rank] = 0;
    if (status != 0) {
      return fail(ErrorCode::kUnavailable, str_cat("rank ", rank, " failed as it stopped: ", how_it_ended(status)));
    }
  }
  return {};
}

}  // namespace cairn::engine
