// ProcessRanks: ranks in processes of their own, as engines have one for each device.
//
// Does:     starts `program --rank R` for each rank, with a socket to it as its standard input. In every layer the ranks
//           send what their heads made, and each gets the whole back.
// Fails:    a rank that dies or is silent too long is named in the error, with how it ended. The other ranks end when
//           this object does: none is left behind, and nothing waits for ever.
// Owner:    owns the processes.
// Threads:  one at a time.
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
  [[nodiscard]] Status send_all(MessageKind kind, std::span<const std::byte> bytes);
  [[nodiscard]] Result<std::vector<std::vector<std::byte>>> receive_all(MessageKind kind);
  [[nodiscard]] Status exchange_heads(std::size_t rows);
  // The error of a rank, with how its process ended if it did.
  [[nodiscard]] Unexpected<Error> rank_failed(std::size_t rank, const Error& error);

  RankConfig config_;
  std::vector<pid_t> processes_;  // 0: over, and waited for
  std::vector<Channel> channels_;
};

// The part of the rank's process: serves the engine at the other end of the socket until it is told to stop or the engine
// is gone.
[[nodiscard]] Status serve_rank(int socket, std::uint32_t number);

}  // namespace cairn::engine
