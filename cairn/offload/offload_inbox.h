// OffloadInbox: what an edge was told under a pool's lock, until it looks.
//
// Does:     keeps keys in the order in which they came, so many at most: beyond that new ones are only counted.
// Owner:    an OffloadEdge. Threads: any; one lock that nothing is called under.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class OffloadInbox {
 public:
  struct Candidate {
    BlockKey key;
    std::uint32_t sequence_blocks = 0;  // of the sequence it is part of, as far as it was told
  };
  struct Contents {
    std::vector<Candidate> candidates;  // to be copied, perhaps
    std::vector<BlockKey> uses;
    std::uint64_t left_out = 0;  // candidates
  };
  // Which of it anybody looks at.
  struct Interests {
    bool candidates = false;
    bool uses = false;        // for what is learnt from them
    bool used_again = false;  // a block that is used is a candidate too
    std::size_t bound = 0;    // candidates, and uses
  };
  explicit OffloadInbox(const Interests& interests) : interests_(interests) {}

  // Whether somebody ought to look: there was nothing of this kind before, or it is half full.
  [[nodiscard]] bool registered(std::span<const ResidentBlock> blocks);
  [[nodiscard]] bool used(std::span<const BlockKey> keys);
  // Moves what came since the last call into `contents`, in place of what is there. Its memory is used again: in the long
  // run nothing is allocated under a pool's lock.
  void take(Contents& contents);
  [[nodiscard]] bool has_candidates() const;
  // Takes nothing any more.
  void close();

 private:
  void add_candidate(const BlockKey& key, std::uint32_t sequence_blocks) CAIRN_REQUIRES(mutex_);
  void add_use(const BlockKey& key) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_due(std::size_t candidates_before) const CAIRN_REQUIRES(mutex_);

  const Interests interests_;
  mutable Mutex mutex_{LockRank::kInbox};
  Contents contents_ CAIRN_GUARDED_BY(mutex_);
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
