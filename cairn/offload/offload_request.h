// OffloadRequest: keys that are to be copied to the tier below, its OffloadOutcome, and the status of an Offloader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/offload/offload_options.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

// Why a block was not copied.
enum class OffloadRefusal : std::uint8_t {
  kTooShort,  // this and the next three: see evict/admission.h
  kNeverSeenTwice,
  kWouldNotLast,
  kOverBudget,
  kLowPriority,  // below OffloadOptions::least_priority
  kAlreadyBelow,
  kInFlight,  // another transfer already copies it
  kShed,      // the queue was full of more valuable blocks
  kGone,      // evicted before its turn came
  kNoRoom,    // no block of the lower tier is free for it; only the next victims and requests may evict others there
  kTierOut,   // a tier is out of use, or the link is paused
  kFailed,    // the transfer failed
  kCancelled,
  kNoParent,  // the block before it in its sequence is in neither tier, so that nobody could load this one
};
inline constexpr std::size_t kOffloadRefusals = 14;
// "too short", "already below" and so on
[[nodiscard]] std::string_view to_string(OffloadRefusal refusal);

// offered = copied + refused + pending + in_flight, always.
struct OffloadStatus {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
  OffloadMode mode = OffloadMode::kAhead;
  bool is_paused = false;
  std::uint64_t offered = 0;  // blocks, like all that follow
  std::uint64_t copied = 0;
  std::array<std::uint64_t, kOffloadRefusals> refused = {};
  std::uint32_t pending = 0;
  std::uint32_t in_flight = 0;
};

// Names a request of one Offloader. Ids are never reused.
enum class OffloadRequestId : std::uint64_t {};

struct OffloadOutcome {
  std::vector<bool> is_below;  // by key, in the order of the request: is it in the lower tier now?
  std::string error;           // of the first key that is not; empty if all are
};

struct OffloadRequest {
  std::vector<BlockKey> keys;
  std::uint32_t priority = 50;  // 0 to 100; goes before pending blocks of a lower priority
  TimePoint deadline = TimePoint::max();
  std::function<void(OffloadOutcome&&)> done = {};  // called once, in pump() or on a thread of the executor
};

}  // namespace cairn
