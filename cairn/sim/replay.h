// run_replay(): sends the requests of a source through simulated workers on one virtual clock, and reports.
//
// At each point in time, until nothing changes: passes that end return their finished requests, in worker order;
// requests that have arrived are placed; idle workers with requests begin a pass, in worker order. Then time jumps to
// the next end of a pass or arrival.
//
// Round robin places requests in order of arrival. kPrefix gives a request to the worker that has the longest prefix of
// its prompt according to the workers' events; among equals to the one with the fewest requests, then to the first. It
// skips a worker with more than kMostLoad times the average number of requests, so that one shared prefix does not send
// everything to one worker. It knows the workers' own caches, not the tiers below.
//
// A request that can never fit, or that is the first turn of a session and has a delay, is refused, counted and listed.
//
// Thread safety: runs on the calling thread. The same options and source give the same report, bit for bit.
// With a host or disk tier in ReplayOptions::manager, each worker has a real KvBlockManager (managed_cache.h).
//
// Errors: fails for options that no engine and no manager accepts, and for tiers with the seed profile or without prefix
// caching.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"
#include "cairn/sim/engine_options.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/report.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

// The same token, `count` times.
struct TokenRun {
  Token token = 0;
  std::uint32_t count = 0;
};

struct ReplayRequest {
  std::uint64_t line = 0;  // line in the source, for messages
  TimePoint arrival{0};    // counts relative to that of the first request
  std::vector<TokenRun> prompt = {};
  std::uint64_t output_tokens = 0;
  // Requests with the same number other than 0 are turns of one session. A turn arrives `delay` after the turn before
  // was answered; without a delay, the difference of their arrivals counts.
  std::uint64_t session = 0;
  std::optional<Duration> delay = {};
};

// Yields the requests of a replay one by one, so that there may be any number of them. Outlives the replay; called on the
// thread that runs it.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // Overwrites `request` with the next one and may reuse its memory. Returns false at the end, and from then on.
  [[nodiscard]] virtual bool next(ReplayRequest& request) = 0;
};

enum class Placement : std::uint8_t { kRoundRobin, kPrefix };

// "round-robin", "prefix"
[[nodiscard]] std::string_view to_string(Placement placement);
[[nodiscard]] std::optional<Placement> parse_placement(std::string_view name);

// Receives every event of every worker, in order.
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

// The link between a tier and the one above, a direction each.
struct ReplayLink {
  double gigabytes_per_s_down = 0;  // into the tier; 0: no limit
  double gigabytes_per_s_up = 0;    // out of it
  Duration latency{0};              // of each transfer
  bool in_order = true;             // transfers go one after the other; if false, they share the rate
  bool shared_by_all = false;       // all workers share one pair of links; if false, each has its own
};

// A tier does not work for a while, on all workers.
struct TierFault {
  enum class Kind : std::uint8_t {
    kStall,    // copies arrive when the fault is over
    kFail,     // copies fail
    kGarbage,  // blocks that are read have wrong bytes
  };
  CacheLevel level = CacheLevel::kG3;
  Kind kind = Kind::kFail;
  TimePoint begin{0};
  Duration length{0};
};
[[nodiscard]] std::string_view to_string(TierFault::Kind kind);

struct ReplayOptions {
  EngineOptions engine = {};
  std::uint32_t workers = 1;
  // The tiers below, and how blocks move. Device and block size are those of `engine`; sizes are of one worker.
  ManagerConfig manager = {};
  ReplayLink host_link = {};
  ReplayLink disk_link = {};
  std::vector<TierFault> faults = {};
  Placement placement = Placement::kRoundRobin;
  std::uint32_t concurrency = 0;      // requests in flight; 0: they arrive at the times of the source
  ReplayEventSink* events = nullptr;  // outlives the run
  // Called from time to time; may be empty. If it returns false, the run stops and reports what it has so far.
  std::function<bool(const ReplayProgress&)> progress = {};
};

inline constexpr std::uint64_t kMostLoad = 2;

[[nodiscard]] Result<Report> run_replay(const ReplayOptions& options, RequestSource& source);

}  // namespace cairn::sim
