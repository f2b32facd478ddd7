// HostSize: how many blocks of the host tier may be used, changed while it is in use.
//
// Does:     holds the blocks in excess itself, so that nobody else gets them, and gives their pages back to the system where
//           nobody else holds on to the pages: a GPU's driver or io_uring would go on with the old ones. Shrinking takes what is free or evictable at once and the rest as it is let go of.
// Owner:    the manager; the tier outlives it.
// Threads:  any; calls do not overlap (the manager's lock).
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/pool/blocks.h"
#include "cairn/tier/tier.h"

namespace cairn {

class HostSize {
 public:
  HostSize(Tier& host, std::uint32_t blocks, bool pages_may_go);

  // Requires: 1 to the tier's capacity.
  void set(std::uint32_t blocks);
  // Withholds what has become free since; whether it did.
  bool advance();
  [[nodiscard]] std::uint32_t withheld() const { return withheld_ ? withheld_->size() : 0; }
  [[nodiscard]] std::uint32_t to_withhold() const { return excess_ - withheld(); }

 private:
  void give_pages_back(const MutableBlocks& blocks) const;

  Tier& host_;
  const bool pages_may_go_;
  std::uint32_t excess_ = 0;  // blocks that are not to be used
  std::optional<MutableBlocks> withheld_;
};

}  // namespace cairn
