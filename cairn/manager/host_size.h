// HostSize: how many blocks of the host tier may be used, changed while the tier is in use.
//
// It holds the blocks in excess itself, so that nobody else gets them, and gives their pages back to the system unless a GPU's
// driver or io_uring has registered them: those would go on with the old pages. Shrinking takes blocks that are free or
// evictable at once, and the others as they are released.
//
// Thread safety: under the manager's lock.
// Ownership:     the manager; the tier outlives it.
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
  // Withholds blocks that have been released since. Returns whether there were any.
  bool advance();
  [[nodiscard]] std::uint32_t withheld() const { return withheld_ ? withheld_->size() : 0; }
  [[nodiscard]] std::uint32_t to_withhold() const { return excess_ - withheld(); }

 private:
  void give_pages_back(const MutableBlocks& blocks) const;

  Tier& host_;
  const bool pages_may_go_;
  std::uint32_t excess_ = 0;  // blocks that may not be used
  std::optional<MutableBlocks> withheld_;
};

}  // namespace cairn
