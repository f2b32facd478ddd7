// What a caller sees of loading: OnboardOptions; LoadRequest, OnboardRequest, PrefetchRequest: blocks that are to be brought up;
// the outcome of a load, and the status of an Onboarder.
//
// Every request ends with one call of its `done`, which may be empty: on the caller's thread if nothing has
// to be loaded, else on a thread of the manager or in pump().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/pool/blocks.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/cache_groups.h"

namespace cairn {

// How blocks come up to the device.
struct OnboardOptions {
  // Blocks from disk go through host memory and stay there for the next load. Otherwise they go straight to the device.
  bool through_host = true;
  Duration deadline = std::chrono::seconds(5);  // of a load that has none
  std::uint32_t loads = 256;                    // in flight at once; further ones are refused
  // Whether to load only what is faster to load than to compute.
  bool weigh = true;
  // Of the engine. 0: it is learned from the iterations that are reported; as long as none are, everything is loaded.
  double prefill_tokens_per_second = 0;
  // Speeds of links. 0: they are measured.
  std::uint64_t host_to_device_bytes_per_second = 0;
  std::uint64_t disk_to_device_bytes_per_second = 0;
  std::uint64_t disk_to_host_bytes_per_second = 0;
  std::uint64_t remote_to_host_bytes_per_second = 0;
};

// Names a load of one Onboarder. Ids are never reused.
enum class LoadId : std::uint64_t {};

// Where each key of a list is now; the nearest tier if it is in several.
struct PrefixLocation {
  std::vector<CacheLevel> levels;  // of the longest prefix that is in tiers that can be read
  [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(levels.size()); }
};

// What a request of a model with layer groups can load, and which blocks that takes. A load of `keys` brings the blocks in their
// order; usable_after_load() (group_prefix.h) says what can be used if only the first of them came.
struct GroupLocation {
  std::size_t local = 0;  // common blocks that the request had
  // Common blocks, from the first on, that it can use once the blocks are loaded; `local` if there is nothing to load.
  std::size_t boundary = 0;
  // The boundary up to which the full groups have their blocks: beyond `boundary` if only other groups lack some.
  std::size_t full_boundary = 0;
  std::vector<GroupBlock> blocks = {};
  std::vector<BlockKey> keys = {};      // of those blocks
  std::vector<CacheLevel> levels = {};  // the nearest tier of each
};

struct LoadOutcome {
  ImmutableBlocks blocks;    // of the device: the longest prefix; empty if blocks of the engine were filled
  std::uint32_t prefix = 0;  // number of blocks, from the first key on, that are on the device now
  std::array<std::uint32_t, kCacheLevels> from = {};  // of those, by the tier they were found in
  std::uint32_t not_worth_it = 0;                     // blocks that are faster to compute
  std::string why = {};                               // why the prefix is shorter than what was to be loaded
};

// The longest prefix of the keys, to the device.
struct LoadRequest {
  std::vector<BlockKey> keys = {};
  std::optional<TimePoint> deadline = {};  // std::nullopt: OnboardOptions::deadline from now, in all three requests
  std::uint32_t most = 0;                  // blocks to load at most; 0 for any number
  bool weigh = true;                       // whether to ask the cost model
  std::function<void(LoadOutcome&&)> done = {};
};

// Blocks that the caller holds in a lower tier, to the device. Brings every block that can be brought, in order, not only a
// prefix.
struct OnboardRequest {
  ImmutableBlocks blocks;
  std::optional<MutableBlocks> targets = {};  // one for each block; std::nullopt: new blocks are allocated
  std::optional<TimePoint> deadline = {};
  std::function<void(Result<ImmutableBlocks>&&)> done = {};  // an error if no block was brought
};

// Those of the keys that are only on disk or in a store, to host memory.
struct PrefetchRequest {
  std::vector<BlockKey> keys = {};
  std::optional<TimePoint> deadline = {};
  // Gets the number of blocks that arrived. They are evicted only after it has returned, unless it takes hold of them.
  std::function<void(std::uint32_t)> done = {};
};

// What decides whether blocks are worth loading, besides where they are.
struct LoadContext {
  std::uint32_t first_block = 0;   // the position of the first of them in its sequence
  std::uint32_t total_tokens = 0;  // of the sequence; 0 if that is not known
  bool engine_is_busy = false;     // other requests are computed: once loaded, this one waits until an iteration ends
  // Blocks of loads that were decided on and are not submitted yet, by the tier they come from.
  std::array<std::uint32_t, kCacheLevels> promised = {};
  // Blocks of the tiers that are copied for each block of tokens: not 1 if the model has layer groups.
  double copies_each = 1;
};

// How much of what was found is worth loading.
struct LoadWorth {
  std::uint32_t blocks = 0;  // from the first on
  // The next so many blocks are on a disk that is not used because it was slow when it was measured long ago. Prefetch
  // them: that measures it again, and nobody waits for it.
  std::uint32_t to_prefetch = 0;
};

// What an engine computed in one iteration, and how long that took.
struct EngineIteration {
  std::uint64_t prefill_tokens = 0;   // tokens of prompts, of all requests
  std::uint64_t prefill_context = 0;  // the tokens before each of them, added up
  std::uint64_t decode_tokens = 0;    // generated tokens, draft tokens included
  std::uint64_t decode_context = 0;   // the tokens before those of each request, added up
  bool is_full = false;               // a prompt was cut off because the engine computes only so many tokens at once
  Duration duration = Duration::zero();

  // One request computes tokens first to first + tokens - 1 of its prompt.
  void add_prefill(std::uint64_t first, std::uint64_t tokens) {
    prefill_tokens += tokens;
    prefill_context += tokens * first + tokens * (tokens - (tokens > 0 ? 1 : 0)) / 2;
  }
  // One request generates, after so many tokens.
  void add_decode(std::uint64_t first, std::uint64_t tokens) {
    decode_tokens += tokens;
    decode_context += first;
  }
};

// How fast the engine prefills, as far as it is known.
struct PrefillStatus {
  enum class Source : std::uint8_t {
    kUnknown,  // no iteration was reported, and none is expected: everything is loaded
    kAssumed,  // too few were reported: a fast engine is assumed
    kLearned,
    kPinned,  // by the configuration
  };
  Source source = Source::kUnknown;
  std::uint64_t iterations = 0;  // that prefilled, and were reported
  double tokens_per_second = 0;  // without context; 0 if the source is kUnknown
  double tokens_per_second_at_32k = 0;
  double seconds_per_iteration = 0;  // besides the tokens that it prefills
  double tokens_per_iteration = 0;   // that are prefilled at most; infinite if prompts are not cut
};
[[nodiscard]] constexpr const char* to_string(PrefillStatus::Source source) {
  constexpr const char* kNames[] = {"unknown", "assumed", "learned", "pinned"};
  return kNames[static_cast<std::size_t>(source)];
}

struct OnboardStatus {
  std::uint32_t loads = 0;                            // in flight
  std::uint64_t finished = 0;                         // loads
  std::uint64_t refused = 0;                          // loads: too many were in flight
  std::uint64_t joined = 0;                           // blocks that another load was already bringing
  std::uint64_t not_worth_it = 0;                     // blocks
  std::uint64_t expired = 0;                          // loads that ended by their deadline
  std::array<std::uint64_t, kCacheLevels> hits = {};  // blocks found, by tier
  std::uint64_t misses = 0;                           // blocks found in no tier
};

}  // namespace cairn
