// Load: one call of an Onboarder, from its beginning to its result. Piece: some of its keys that move together.
//
// Owner:    the Onboarder's Impl, whose lock guards all of it. A piece outlives its load where its copy does.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/onboard/onboarder.h"

namespace cairn {

struct Load;
struct Piece;
using LoadPtr = std::shared_ptr<Load>;
using PiecePtr = std::shared_ptr<Piece>;
// A list, whose elements go from one to another without memory: what has begun can always be ended.
using PieceList = std::list<PiecePtr>;

// Why a load ended early where there was no memory, for the reason either: a string has room for it.
inline constexpr const char* kNoMemory = "no memory";

// What has ended and is to be told.
struct EndedLoad {
  LoadPtr load = {};
  LoadResult result = {};
  std::shared_ptr<void> held = {};  // let go of before
};

// The links that blocks come up by.
enum class Lane : std::uint8_t { kHostToDevice, kDiskToDevice, kDiskToHost };
inline constexpr std::uint32_t kLanes = 3;
[[nodiscard]] constexpr std::uint32_t index_of(Lane lane) { return static_cast<std::uint32_t>(lane); }

// Where copies that others may wait for end.
enum class Goal : std::uint8_t { kDevice, kHost };
inline constexpr std::uint32_t kGoals = 2;
[[nodiscard]] constexpr std::uint32_t index_of(Goal goal) { return static_cast<std::uint32_t>(goal); }

struct Load {
  enum class Kind : std::uint8_t {
    kPrefix,    // to the device's pool, without a hole
    kBlocks,    // to blocks of the engine, without a hole
    kGiven,     // blocks that the caller holds, to the device's pool
    kPrefetch,  // to the host's pool
  };
  using PrefixDone = std::function<void(LoadResult&&)>;
  using GivenDone = std::function<void(Result<ImmutableBlocks>&&)>;
  using PrefetchDone = std::function<void(std::uint32_t)>;

  LoadId id{};
  Kind kind = Kind::kPrefix;
  std::vector<BlockKey> keys = {};
  TimePoint deadline{};
  TimePoint copies_by{};  // a little earlier: of a late copy, what did arrive is known before the result is made
  std::variant<PrefixDone, GivenDone, PrefetchDone> done = {};

  ImmutableBlocks base = {};                  // what the device had from the first key on; kGiven: the caller's blocks
  std::vector<ImmutableBlocks> arrived = {};  // what came since, so that none of it goes before the result is made
  std::vector<PinnedBlocks> here = {};        // what the destination had further on
  std::vector<bool> is_there = {};            // kBlocks, kPrefetch: by key
  EngineBlocks block_ids = {};                // kBlocks
  std::vector<CacheLevel> found = {};         // kPrefix, kBlocks: by key, as far as they were found
  std::uint32_t planned = 0;                  // keys from the first on that were to be brought
  std::uint32_t hopeful = 0;                  // of those, as far as nothing went wrong yet

  std::uint32_t open = 0;             // pieces, and whoever is adding some
  std::vector<PiecePtr> pieces = {};  // that are not over
  bool has_targets = false;           // kGiven: the caller's, one for each key
  bool is_cancelled = false;
  bool is_fenced = false;     // the tiers were reset while it was in flight: its result is a miss
  bool is_called_in = false;  // its copies were told that their time is over
  bool is_late = false;       // and some were
  bool is_over = false;       // the result is made
  std::uint32_t not_worth_it = 0;
  std::string why = {};
  std::list<EndedLoad> ending = {};  // one, empty until it has ended; made with the load

  // Why it ends early: the first reason is the one that is told.
  void note(std::string_view reason) {
    if (!why.empty()) {
      return;
    }
    try {
      why = reason;
    } catch (const std::bad_alloc&) {
      why = kNoMemory;
    }
  }
  [[nodiscard]] bool is_prefix() const { return kind == Kind::kPrefix || kind == Kind::kBlocks; }
  [[nodiscard]] std::span<const BlockKey> keys_of(std::uint32_t first, std::uint32_t count) const {
    return std::span(keys).subspan(first, count);
  }
  // Where its blocks are known when they have arrived; the engine's blocks are nobody else's.
  [[nodiscard]] std::optional<Goal> goal() const {
    if (kind == Kind::kBlocks) {
      return std::nullopt;
    }
    return kind == Kind::kPrefetch ? Goal::kHost : Goal::kDevice;
  }
};

struct Piece {
  enum class Stage : std::uint8_t {
    kAwaiting,  // others bring it
    kToHost,    // the first of two hops
    kLast,      // to where it was asked for
    kOver,
  };

  LoadPtr load;
  std::uint32_t first = 0;  // of the load's keys
  std::uint32_t count = 0;
  CacheLevel from = CacheLevel::kG2;
  Stage stage = Stage::kLast;
  Lane lane = Lane::kHostToDevice;  // of the hop that is next or under way
  std::uint32_t attempt = 0;
  PiecePtr awaited = {};  // until it is known there that this one waits
  Goal awaited_at = Goal::kDevice;
  std::optional<CopySource> source = {};           // of that hop, while it is not under way
  std::optional<MutableBlocks> host_targets = {};  // of the first hop
  std::optional<MutableBlocks> targets = {};       // of the last one
  bool is_queued = false;
  bool is_flying = false;
  TransferId copy{};                           // while it flies
  std::array<PieceList, kGoals> waiting = {};  // for it to get there
  PieceList place = {};                        // its own, null, for a queue or the outbox; made when it begins
  PieceList::iterator place_in_queue = {};     // while it is queued

  [[nodiscard]] std::span<const BlockKey> keys() const { return load->keys_of(first, count); }
};

// What is to be done when the lock is no longer held: tell results, and let go of what may run the caller's code.
struct Outbox {
  std::list<EndedLoad> ended;
  PieceList over;
  bool wake = false;
};

}  // namespace cairn
