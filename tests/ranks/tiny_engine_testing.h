// TinyEngine: the scheduler of an engine with no model: requests of a few prompts come, are matched, loaded or "computed",
// and finish; a block's bytes follow from its key. It continues after losing ranks.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cairn/connector/scheduler_connector.h"
#include "tests/ranks/rank_processes_testing.h"

namespace cairn::testing {

class TinyEngine {
 public:
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t loaded = 0;   // blocks that were loaded from tiers
    std::uint64_t missing = 0;  // blocks whose load failed
    std::uint64_t wrong = 0;    // parts of loaded blocks with wrong bytes
    std::uint64_t refused = 0;  // of requests, by the connector
    std::uint64_t aborted = 0;  // requests, because a rank was missing
  };

  TinyEngine(const TinyGrid& grid, const std::string& folder, std::uint64_t seed, bool with_disk);
  ~TinyEngine();

  // One iteration: new requests, loads that have ended, a step of the ranks. False: a rank is gone.
  [[nodiscard]] bool step();
  // The same without waiting for the ranks: what the scheduler does while one of them hangs.
  void idle();
  // Brings a rank that was killed back; requests that were in flight are aborted, since their KV is gone.
  void recover(std::uint32_t rank);
  // Ends all requests and waits until nothing is in flight and every rank has the outcomes. False if that takes too
  // long.
  [[nodiscard]] bool finish_all();

  [[nodiscard]] RankProcesses& ranks() { return *ranks_; }
  [[nodiscard]] SchedulerConnector& connector() { return *connector_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::size_t free_blocks() const { return free_.size(); }

 private:
  struct Request {
    RequestHandle handle{};
    std::string id;
    std::vector<Token> tokens;
    std::vector<BlockId> blocks;
    std::size_t computed = 0;        // tokens
    std::size_t loading = 0;         // tokens of the load in flight
    std::uint32_t checked_from = 0;  // blocks that were loaded and not checked yet
    std::uint32_t checked_to = 0;
    enum class Phase { kLoading, kReady, kComputed } phase = Phase::kReady;
  };

  void admit();
  void take_outcomes();
  void abort_all();
  [[nodiscard]] TinyStep make_step();
  void release(const std::vector<BlockId>& blocks);
  [[nodiscard]] std::uint64_t seed_of_block(const Request& request, std::size_t block) const;

  std::mt19937_64 random_;
  std::unique_ptr<SchedulerConnector> connector_;
  std::unique_ptr<RankProcesses> ranks_;
  std::deque<BlockId> free_;
  std::vector<Request> requests_;
  std::vector<Request> finishing_;  // their blocks are held
  std::uint64_t iteration_ = 0;
  std::uint64_t next_id_ = 0;
  Counts counts_;
};

}  // namespace cairn::testing
