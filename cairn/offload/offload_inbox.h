// OffloadInbox: notifications to an Offloader under a pool's lock, until pump() takes them. Keeps keys in the order in
// which they came, up to a bound; beyond it, new ones are only counted.
//
// Thread safety: any thread. One lock; nothing else is called under it.
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
    std::uint32_t sequence_blocks = 0;  // of its sequence, as far as it is known
  };
  struct Contents {
    std::vector<Candidate> candidates;  // blocks that may be worth copying
    std::vector<BlockKey> uses;
    std::uint64_t left_out = 0;  // candidates beyond the bound
  };
  // What is recorded.
  struct Interests {
    bool candidates = false;
    bool uses = false;        // for the admission filter
    bool used_again = false;  // a block that is used is a candidate too
    std::size_t bound = 0;    // of candidates, and of uses
  };
  explicit OffloadInbox(const Interests& interests) : interests_(interests) {}

  // Each returns whether the Offloader should be woken: these are the first candidates, or the uses are half full.
  [[nodiscard]] bool registered(std::span<const ResidentBlock> blocks);
  [[nodiscard]] bool used(std::span<const BlockKey> keys);
  // Replaces `contents` with what came since the last call. Keeps the memory of `contents` for later calls, so that in the
  // long run nothing is allocated under a pool's lock.
  void take(Contents& contents);
  [[nodiscard]] bool has_candidates() const;
  // Records nothing from now on.
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
