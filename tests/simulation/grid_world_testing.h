// GridWorld: a leader and the ranks of a random grid (tensor x pipeline, uneven stages, replicas), with blocks that move between
// the tiers while ranks die and come back, also with transfers in flight. In half of the worlds copies fail, are short, late or
// corrupt. Halfway all end, and another leader goes on with the files, most often with another grid after resharding.
//
// Everything is drawn from a seed. The leader, the ranks, their host memory and files are the real ones, all in this process. A model
// of the whole engine knows what each block of each tier holds. Checked:
//   - a transfer of blocks that are there succeeds, unless a fault or a death may have struck it; what is done is right: every rank's
//     device then has its part of the right block;
//   - the checksum of a block is that of the block of the whole model, on every grid;
//   - nothing that was in host memory before a rank came back is read; what is on disk is, also by a later leader and on another
//     grid;
//   - a transfer fails while a rank is gone, and leaves nothing behind that is taken for a block.
//
// Thread safety: one thread uses it.
// Errors:        run() returns what went wrong. The seed shows it again, except how far a transfer is when a rank dies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

namespace cairn::testing {

struct GridWorldOptions {
  std::uint64_t seed = 1;
  std::uint32_t steps = 60;
  std::string folder;           // for the files of the disk tier; empty when a world begins
  std::ostream* log = nullptr;  // every step, for people
};

// What happened in a run, so that a test can check that it happened at all.
struct GridCounts {
  std::uint64_t moved = 0;      // blocks
  std::uint64_t failed = 0;     // blocks of transfers while a rank was gone
  std::uint64_t stale = 0;      // blocks of host memory that a rank that came back made void
  std::uint64_t struck = 0;     // blocks that a fault or a death in flight struck
  std::uint64_t deaths = 0;     // of ranks
  std::uint64_t in_flight = 0;  // of those, with a transfer in flight
  std::uint64_t replicas = 0;   // grids in which ranks share their memory
  std::uint64_t stages = 0;     // grids with several stages
  std::uint64_t reshards = 0;   // to another grid
  GridCounts& operator+=(const GridCounts& other);
};

class GridWorld {
 public:
  explicit GridWorld(const GridWorldOptions& options);
  ~GridWorld();

  // All steps. Returns what went wrong; empty if nothing did.
  [[nodiscard]] std::string run();
  [[nodiscard]] const GridCounts& counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::testing
