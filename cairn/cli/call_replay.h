// Replays recorded calls of a connector (connector/call_recorder.h) in virtual time: the same requests, blocks and iterations,
// on a connector with the recorded configuration or another one, over links of given speeds. Nothing is computed or copied.
//
// The replayed connector may load other blocks than the recorded one, and at other times. A request that waits for its load
// is left out of the iterations that it ran in, and catches up afterwards; one that loads more computes less. Device blocks
// that saves of the replay still read are replaced by others. So a replay always runs to the end of the recording.
//
// Errors: the file cannot be read or is not a recording; names the line. The configuration is wrong; names the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/onboard/load_request.h"
#include "cairn/transfer/virtual_links.h"

namespace cairn::cli {

struct CallReplayOptions {
  std::string path = {};                   // of the recording; "-" for standard input
  std::vector<std::string> settings = {};  // "host.size=8GiB": override the recorded configuration
  VirtualLinks::Speeds links = {.host = 50e9};
};

// In tokens, unless it says otherwise. Of the recording and of the replay.
struct CallCounts {
  std::uint64_t matched = 0;  // that match() found beyond the engine's own, when the request got its blocks
  std::uint64_t loaded = 0;
  std::uint64_t missing = 0;  // that a load was to bring and did not
  friend bool operator==(const CallCounts&, const CallCounts&) = default;
};

struct CallReplayReport {
  std::uint64_t calls = 0;
  std::uint64_t failed_calls = 0;  // of the recording; they had no effect and are left out
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t iterations = 0;
  CallCounts recorded;
  CallCounts replayed;
  std::uint64_t saved_blocks = 0;    // of the replay
  std::uint64_t unsaved_blocks = 0;  // blocks that were not saved
  std::uint64_t host_blocks = 0;     // of the host tier of the replay
  PrefillStatus prefill = {};        // of the replay, at its end: what loads were weighed against
  Duration recorded_time{};
  std::vector<std::string> problems = {};  // calls that the replayed connector refused, and why; the first 20
  std::uint64_t problem_count = 0;
};

[[nodiscard]] Result<CallReplayReport> replay_calls(const CallReplayOptions& options);
// For people: a table.
[[nodiscard]] std::string to_text(const CallReplayReport& report);
[[nodiscard]] std::string to_json(const CallReplayReport& report);

}  // namespace cairn::cli
