// PrefixIndex: which workers have which blocks, as a router knows it: from their events alone.
//
// A block that a worker stored and has not removed since is taken to be there. An event that repeats what is known is
// ignored.
//
// Thread safety: not thread-safe.
// Complexity: an event takes time in proportion to the workers that have the block; depths() to the workers of all
//             keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/sim_table.h"
#include "cairn/tokens/block_key.h"

namespace cairn::sim {

class PrefixIndex {
 public:
  explicit PrefixIndex(std::uint32_t workers) : depths_(workers) {}

  void stored(std::uint32_t worker, const KvStored& event);
  void removed(std::uint32_t worker, const KvRemoved& event);

  // For each worker, how many of these blocks it has from the first one on, without a gap. Valid until the next call.
  [[nodiscard]] std::span<const std::uint32_t> depths(std::span<const BlockKey> keys);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Holders {
    std::uint32_t first = kNone;  // index in nodes_
    [[nodiscard]] bool vacant() const { return first == kNone; }
  };
  struct Node {
    std::uint32_t worker;
    std::uint32_t next;
  };

  void add(std::uint32_t worker, std::uint64_t hash);
  void remove(std::uint32_t worker, std::uint64_t hash);

  internal::SimTable<std::uint64_t, Holders> holders_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> unused_;
  std::vector<std::uint32_t> depths_;
};

}  // namespace cairn::sim
