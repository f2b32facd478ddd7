// ProcessRanks: ranks in separate processes, as engines have one for each device.
//
// Starts `program --rank R` for each rank, with a socket as its standard input. In every layer the ranks of a pipeline stage
// send the outputs of their heads, and each gets those of all ranks back.
//
// Thread safety: one thread at a time.
// Ownership: owns the processes. The destructor ends all of them.
// Errors: the error names a rank that dies or is silent too long, and how it ended. Nothing waits forever.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/channel.h"
#include "examples/engine/ranks.h"

namespace cairn::engine {

class ProcessRanks final : public Ranks {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ProcessRanks>> start(
      const std::string& program, const RankConfig& config, std::chrono::seconds silence = std::chrono::seconds(60));
  ~ProcessRanks() override;
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  [[nodiscard]] Result<StepOutput> run(const StepInput& input) override;
  [[nodiscard]] Status stop() override;
  [[nodiscard]] pid_t process(std::uint32_t rank) const { return processes_[rank]; }

 private:
  explicit ProcessRanks(const RankConfig& config) : config_(config) {}

  [[nodiscard]] Status start_rank(const std::string& program, std::chrono::seconds silence);
  // Ranks by number: `count` of them from `first` on.
  struct Some {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Some all() const { return {0, channels_.size()}; }
  [[nodiscard]] Status send_to(const Some& ranks, MessageKind kind, std::span<const std::byte> bytes);
  [[nodiscard]] Result<std::vector<std::vector<std::byte>>> receive_from(const Some& ranks, MessageKind kind);
  // The layers of one pipeline stage, and what it made for the next one.
  [[nodiscard]] Status run_stage(std::uint32_t stage, std::size_t rows);
  [[nodiscard]] Status exchange_heads(const Some& ranks, std::size_t rows);
  // The error of a rank, with how its process ended if it did.
  [[nodiscard]] Unexpected<Error> rank_failed(std::size_t rank, const Error& error);

  RankConfig config_;
  std::vector<pid_t> processes_;  // 0: ended and reaped
  std::vector<Channel> channels_;
};

// The part of the rank's process: serves the engine at the other end of the socket until it gets kStop or the engine is
// gone.
[[nodiscard]] Status serve_rank(int socket, std::uint32_t number);

}  // namespace cairn::engine
