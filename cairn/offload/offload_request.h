// What a caller sees of offloading: OffloadOptions, an OffloadRequest for keys that are to be copied to the tier below, its
// OffloadOutcome, the status of an Offloader, and what a user's filter decides about.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class OffloadMode : std::uint8_t {
  kAhead,           // the next victims; and every block that is registered, while the lower tier has free blocks
  kOnRegistration,  // every block as it is registered (write-through)
  kOff,             // only what is requested
};
inline constexpr OffloadMode kAllOffloadModes[] = {OffloadMode::kAhead, OffloadMode::kOnRegistration,
                                                   OffloadMode::kOff};
// "ahead", "write-through", "off"
[[nodiscard]] std::string_view to_string(OffloadMode mode);

// How blocks of one tier move down to the next.
struct OffloadOptions {
  OffloadMode mode = OffloadMode::kAhead;
  double low_water = 0.05;   // kAhead: least share of the upper tier's blocks that is kept free or ready to be evicted
  std::uint32_t batch = 64;  // blocks in one transfer
  std::uint32_t in_flight = 4;  // transfers at once
  // Pending blocks; beyond it the least valuable are not copied. 0: what the link copies within `deadline` at its latest
  // speed, no fewer than the longest sequence so far has, and at most the blocks of the upper tier.
  std::uint32_t queue = 0;
  Duration deadline = std::chrono::seconds(10);  // of a transfer
  // What is worth copying at all; see docs/configuration.md.
  std::uint32_t least_uses = 1;
  std::uint32_t least_blocks = 1;
  std::uint32_t least_priority = 0;
  double least_chance = 0;
  std::uint64_t bytes_per_day = 0;  // 0 for no limit

  // Whether the uses of a block decide about it.
  [[nodiscard]] bool counts_uses() const { return least_uses > 1 || least_chance > 0 || bytes_per_day > 0; }
  // Whether blocks are rejected at all.
  [[nodiscard]] bool is_selective() const { return counts_uses() || least_blocks > 1 || least_priority > 0; }
};

// Why a block was not copied.
enum class OffloadRefusal : std::uint8_t {
  kTooShort,  // this and the next three: a filter of the configuration does not admit it
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
  kNoParent,  // the block before it in its sequence is in neither tier, or was refused, so that nobody could load this one
  kFiltered,  // the user's filter refused it, failed, or is bypassed
};
inline constexpr std::size_t kOffloadRefusals = 15;
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
  // Of the user's filter.
  std::uint64_t filter_calls = 0;
  std::uint64_t filter_overruns = 0;  // calls that took longer than the limit
  std::uint64_t filter_failures = 0;  // calls that threw
  bool is_filter_bypassed = false;
};

// Names a request of one Offloader. Ids are never reused.
enum class OffloadRequestId : std::uint64_t {};

struct OffloadOutcome {
  std::vector<bool> is_below;  // by key, in the order of the request: is it in the lower tier now?
  std::string error;           // of the first key that is not; empty if all are
  // Of the keys that are not, how many for each reason. A deadline that has passed counts as kCancelled.
  std::array<std::uint32_t, kOffloadRefusals> refused = {};
};

struct OffloadRequest {
  std::vector<BlockKey> keys = {};
  std::uint32_t priority = 50;  // 0 to 100; goes before pending blocks of a lower priority
  TimePoint deadline = TimePoint::max();
  std::function<void(OffloadOutcome&&)> done = {};  // called once, in pump() or on a thread of the executor
  // What the filters know of the engine's request whose blocks these are; not used for blocks of a pool.
  std::string request = {};             // its id; empty: not known
  std::uint64_t sequence_tokens = 0;    // that it has so far; 0: as many as the blocks up to the last key hold
  std::optional<BlockKey> parent = {};  // the block before the first key, in the same sequence
};

// What a user's filter sees of a block that could be copied to the tier below.
struct FilteredBlock {
  BlockKey key;  // key.position() is the index of the block in its sequence
  std::uint32_t priority = 0;
  std::uint32_t uses = 1;            // by requests, as far as they are remembered; at least 1
  TenantId tenant = kDefaultTenant;  // index in requests.tenants plus 1; 0 for the default tenant
};

// Blocks that a filter decides about in one call: consecutive blocks that a request of the engine saves, or blocks of any
// sequences that leave a pool, each after its parent.
struct FilteredRun {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
  std::string_view request = {};      // id of the engine's request; empty: not known, or the blocks are of a pool
  std::uint64_t sequence_tokens = 0;  // of that request; 0: not known
  std::span<const FilteredBlock> blocks = {};
};

// Decides, beside Cairn's own filters, which blocks are copied to the tier below. `keep` has one element for each block of the
// run, all true: the filter sets those of blocks to false that are not to be copied. The rest of a sequence after such a
// block is not copied either. See docs/manager.md for what a filter may do, and what happens if it is slow or throws.
using OffloadFilter = std::function<void(const FilteredRun& run, std::span<bool> keep)>;

}  // namespace cairn
