// RemoteSpace: which keys of a store are this manager's: the tenant, the namespace of its blocks (with the weights generation), and
// an era, which a reset replaces.
//
//     cairn/1/TENANT/NAMESPACE/ERA/TAG
//
// The era of a namespace is a random number in the store itself, so that a reset outlives the process: a process that starts later
// reads the new one. If the store has none, because it is new or has evicted it, a new one is put there, and nothing from before is
// found. Until it is known, and after a reset until it is written, prefix() is empty and nothing may be read or written.
//
// Thread safety: any thread.
// Ownership: the store and the clock outlive it; callbacks in flight keep what they need.
// Errors: begin_era() waits for the store, up to the timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/cluster/block_store.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

class RemoteSpace {
 public:
  struct Options {
    std::string tenant = {};
    NamespaceId space = {};
    Duration timeout = std::chrono::seconds(2);    // of a request for the era
    Duration ask_again = std::chrono::seconds(1);  // after a request that failed
  };
  RemoteSpace(BlockStore& store, const Clock& clock, const Options& options);
  ~RemoteSpace();

  // What keys begin with. std::nullopt while the era is not known: asks the store, if that is not in flight.
  [[nodiscard]] std::optional<std::string> prefix();
  // Grows with every enter() and begin_era(), before anything is stored under the new name.
  [[nodiscard]] std::uint64_t changes() const;
  // Calls `done` once with what keys begin with, as soon as that is known: now, or on the thread of the store. std::nullopt if the
  // store cannot say, and if changes() is not, or not any more, the number given: what was begun before a reset is not stored
  // after it.
  void resolve(std::uint64_t changes, std::function<void(const std::optional<std::string>&)> done);
  // Blocks are of this namespace from now on; its era has to be asked for.
  void enter(NamespaceId space);
  // Nothing that was stored under the present era is found again, by whoever asks for the era from now on. Waits for the store.
  // If it fails, the new era holds here, and prefix() tries to write it again.
  [[nodiscard]] Status begin_era();
  // Why the era is not known; empty if it is, or was not asked for.
  [[nodiscard]] std::string error() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// The key of a block, from the prefix of its space.
[[nodiscard]] std::string store_key(const std::string& prefix, const BlockTag& tag);

}  // namespace cairn
