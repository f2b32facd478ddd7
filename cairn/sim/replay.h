// run_replay(): sends the requests of a source through simulated workers, on one virtual clock, and reports.
//
// Does:     at each moment, until nothing changes: passes that end now hand back what they finished, in worker order;
//           requests that have come are placed; idle workers with requests begin a pass, in worker order. Then time
//           jumps to the next pass end or arrival.
//           Round robin counts requests in the order in which they come. kPrefix gives a request to the worker that has
//           the longest beginning of its prompt, as far as the events of the workers tell; among equals to the one with
//           the fewest requests, then the first. A worker with more than kMostLoad times as many requests as the
//           average one is passed over, so that one beginning that all share does not send everything to one worker.
//           Placement knows what is in the workers' own caches; what is in the tiers below does not count.
//           A request that can never fit, or that has nothing to wait for, is refused, counted and named.
// Threads:  runs on the caller's. The same options and source give the same report, bit for bit.
// Fails:    options that no engine can be made of; tiers in the seed profile, in which the original's requests can drive
//           each other's loads out for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/sim/engine.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/report.h"
#include "cairn/sim/request_source.h"

namespace cairn::sim {

enum class Placement : std::uint8_t { kRoundRobin, kPrefix };

// "round-robin", "prefix"
[[nodiscard]] std::string_view to_string(Placement placement);
[[nodiscard]] std::optional<Placement> parse_placement(std::string_view name);

// Is told every event of every worker, in the order in which they happen.
class ReplayEventSink {
 public:
  virtual ~ReplayEventSink() = default;
  virtual void on_stored(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                         const KvStored& stored) = 0;
  virtual void on_removed(std::uint32_t worker, TimePoint at, std::uint64_t event_id, CacheLevel tier,
                          const KvRemoved& removed) = 0;
};

struct ReplayProgress {
  TimePoint now{0};
  std::uint64_t arrived = 0;  // requests
  std::uint64_t finished = 0;
};

// A tier below each worker's cache, and the wires from the tier above.
struct ReplayTier {
  CacheLevel level = CacheLevel::kG2;
  std::uint32_t blocks = 0;    // of one worker
  double gigabytes_per_s = 0;  // in each direction; 0: no limit
  Duration latency{0};         // of the first byte
  bool shared_by_all = false;  // the wires: else each worker has its own
};

struct ReplayOptions {
  EngineOptions engine = {};
  std::uint32_t workers = 1;
  std::vector<ReplayTier> tiers = {};  // the nearest first; kMostTiersBelow of them at most
  std::uint64_t block_bytes = 0;       // that wires carry for a block
  Placement placement = Placement::kRoundRobin;
  std::uint32_t concurrency = 0;      // requests in flight; 0: they come when the source says
  ReplayEventSink* events = nullptr;  // outlives the run
  // Called now and then; false stops the run, which reports what there is. Empty: nobody asks.
  std::function<bool(const ReplayProgress&)> progress = {};
};

inline constexpr std::uint64_t kMostLoad = 2;

[[nodiscard]] Result<Report> run_replay(const ReplayOptions& options, RequestSource& source);

}  // namespace cairn::sim
