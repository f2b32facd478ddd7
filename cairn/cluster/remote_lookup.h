// RemoteLookup: finds out which blocks a store has, in the background. What it finds is registered in the pool of the remote tier,
// which is the bounded index that lookups see; nobody waits for the network to look a block up.
//
// A key that was asked for is not asked for again for a while. The blocks of the pool are allocated before the store is asked: if
// the tier is fenced meanwhile, what is registered in them is not found.
//
// Thread safety: any thread, but one pump() at a time. `done` runs in pump(), on the caller's thread, or on a thread of the store.
// Ownership: tier, store, space and clock outlive it. end() it and close the store before it is destroyed.
// Errors: a store that does not answer is a miss, and counts against the health of the tier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/cluster/block_store.h"
#include "cairn/cluster/remote_space.h"
#include "cairn/tier/tier.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

struct RemoteLookupStatus {
  std::uint64_t asked = 0;    // keys
  std::uint64_t found = 0;    // of those
  std::uint64_t failed = 0;   // of those: the store did not answer
  std::uint64_t dropped = 0;  // keys that were not asked for: the queue was full, or the tier out of use
  std::uint32_t pending = 0;  // keys that wait or are in flight
};

class RemoteLookup {
 public:
  struct Options {
    std::uint32_t batch = 256;                   // keys in one request
    std::uint32_t in_flight = 4;                 // requests
    std::uint32_t queue = 16384;                 // keys that wait
    std::uint32_t remembered = 65536;            // keys that were asked for lately
    Duration again = std::chrono::seconds(5);    // after which a key may be asked for again
    Duration timeout = std::chrono::seconds(2);  // of a request
    std::uint32_t priority = 50;                 // of the blocks that are registered
  };
  RemoteLookup(Tier& tier, BlockStore& store, RemoteSpace& space, const Clock& clock, const Options& options,
               std::function<void()> wake);
  ~RemoteLookup();

  // Asks for those of the keys that were not asked for lately, without telling anybody.
  void want(std::span<const BlockKey> keys);
  // Asks for all keys, and then calls `done` with the number of keys from the first on that the tier has. By the deadline, or a
  // timeout from now, it has what is known by then.
  void find(std::vector<BlockKey> keys, TimePoint deadline, std::function<void(std::uint32_t)> done);

  bool pump();
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] RemoteLookupStatus status() const;
  // Asks for nothing more; what waits ends.
  void end();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace cairn
