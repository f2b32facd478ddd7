// RestartWorld: a scheduler, a rank and its engine's device, each of which dies and is started again at any moment, with
// counters that begin anew.
//
// Everything is drawn from a seed. The rank's copies (RankTransfers) and the worker's steps (WorkerSteps) are the real
// ones; the scheduler, the connection between leader and rank, the engine's own channel, the device and the executor
// are models that do one thing at a time: metadata of an old scheduler comes late, the engine or the rank is the first
// to know a new scheduler, joins break, device events fail. Checked:
//   - a save that is reported as done has read what its scheduler's step computed, never earlier or later bytes;
//   - metadata of a scheduler that was replaced is refused, and every other metadata is accepted;
//   - once nothing dies any more, every save of the last scheduler is done.
//
// Thread safety: one thread uses it. The thread of RankTransfers calls back into it.
// Errors:        run() returns what went wrong; the seed shows it again.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

namespace cairn::testing {

struct RestartOptions {
  std::uint64_t seed = 1;
  std::uint32_t steps = 120;
  std::ostream* log = nullptr;  // every step, for people
};

// What happened in a run, so that a test can check that it happened at all.
struct RestartCounts {
  std::uint64_t schedulers = 0;  // started again
  std::uint64_t ranks = 0;       // started again
  std::uint64_t binds = 0;
  std::uint64_t refused = 0;  // metadata of a scheduler that was replaced
  std::uint64_t retried = 0;  // binds that had to wait for copies of an old leader
  std::uint64_t saved = 0;
  std::uint64_t failed = 0;  // saves
  std::uint64_t events_failed = 0;
  RestartCounts& operator+=(const RestartCounts& other);
};

class RestartWorld {
 public:
  explicit RestartWorld(const RestartOptions& options);
  ~RestartWorld();

  // All steps and the end. Returns what went wrong; empty if nothing did.
  [[nodiscard]] std::string run();
  [[nodiscard]] const RestartCounts& counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::testing
