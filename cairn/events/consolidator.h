// Consolidator: merges what several sources (an engine, Cairn's own tiers) say of the cache of one worker and data parallel rank into
// one series of events for routers.
//
//   kDedup        one Stored when a block is first cached anywhere, one Removed when its last copy is gone. The tier is always G1: a
//                 router that counts blocks needs no more, and must not lose a block that left the GPU for the host tier. A
//                 block is announced when its tokens are known and its parent is announced, so parents come before children.
//   kPassthrough  one Stored and one Removed for each tier, as the sources give them.
//
// In both modes a repeated Stored and a Removed of an unknown block change nothing. When nothing is left, the output is Cleared, which is
// a barrier: all earlier events are over.
//
// All sources name a block by the same hash. EngineNames makes that so if they do not.
//
// Thread safety: one thread at a time.
// Ownership: owns what it knows; snapshot() returns all of it.
// Complexity: about 150 bytes and the token ids for each block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/events/kv_event.h"

namespace cairn {

enum class EventMode : std::uint8_t { kDedup, kPassthrough };

class Consolidator {
 public:
  static constexpr std::uint32_t kMaxSources = 4;

  explicit Consolidator(EventMode mode);
  Consolidator(const Consolidator&) = delete;
  Consolidator& operator=(const Consolidator&) = delete;
  ~Consolidator();

  // What `source` says. Appends what routers have to be told to `out`. `knows_parent`: if false, that the event names no parent does not
  // mean that it begins a sequence.
  void apply(std::uint32_t source, const KvEvent& event, std::vector<KvEvent>& out, bool knows_parent = true);
  // The source has nothing cached any more in this tier, or in any; also if what it had can no longer be known.
  void clear(std::uint32_t source, std::optional<CacheLevel> tier, std::vector<KvEvent>& out);
  // The source has exactly these blocks in the tier. `stored` are Stored events of that tier; those without a parent do not
  // begin a sequence if their number is in `orphans`, which is sorted.
  void replace(std::uint32_t source, CacheLevel tier, std::span<const KvEvent> stored,
               std::span<const std::size_t> orphans, std::vector<KvEvent>& out);

  // Everything that is announced now, as events for a router that knows nothing: Cleared, then what is stored, parents first.
  [[nodiscard]] std::vector<KvEvent> snapshot() const;

  struct Counts {
    std::size_t blocks = 0;     // that a source has
    std::size_t announced = 0;  // of these; in kPassthrough one for each tier
    std::size_t waiting = 0;    // for their tokens or their parent
  };
  [[nodiscard]] Counts counts() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// EngineNames: gives the blocks of an engine the hashes that scheme `dynamo` gives to the same tokens, salt and adapter, so that they can be
// merged with the blocks of a manager of that scheme. A block with multimodal items gets a hash of its own that no key of Cairn
// has. Blocks after an unknown parent cannot be named, and are left out.
//
// Thread safety: one thread at a time.
class EngineNames {
 public:
  EngineNames();
  EngineNames(const EngineNames&) = delete;
  EngineNames& operator=(const EngineNames&) = delete;
  ~EngineNames();

  // The event with the new hashes; std::nullopt if none of its blocks can be named.
  [[nodiscard]] std::optional<KvEvent> rename(const KvEvent& event);
  // Forgets all blocks.
  void clear();
  // Blocks that were left out.
  [[nodiscard]] std::uint64_t unnamed() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
