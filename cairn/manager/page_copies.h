// PageCopies: copies pages of the caller's memory into blocks of a manager and back.
//
// A page is stored in a block of the host tier, with a checksum, and from there in the tier below. It is fetched the same way
// back: to the host tier if it is only on disk, and then to the caller's memory. What is fetched is verified on that last copy
// too: a page whose bytes are not those that were stored is dropped and counts as missing.
//
// Pages go through the host tier a few at a time, so that a small tier serves large calls: while some are on their way to or
// from the disk, others are copied from or to the caller's memory.
//
// Thread safety: any thread. Calls wait for the disk, so not in a callback of the manager.
// Ownership: the manager's; the tiers outlive it.
// Errors: kFailedPrecondition if there is no host tier in this process's memory, kInvalidArgument for pages that are not
// blocks. A page that could not be stored or fetched is no error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/metrics.h"
#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_tiers.h"

namespace cairn {

class PageCopies {
 public:
  PageCopies(ManagerTiers& tiers, const Clock& clock, Metrics& metrics);

  [[nodiscard]] Result<std::vector<bool>> store(const PageList& pages, TimePoint deadline);
  [[nodiscard]] Result<std::vector<bool>> fetch(const PageList& pages, TimePoint deadline);

 private:
  struct Saving;
  struct Arriving;
  // Some of the pages of a call: indices into PageList::keys.
  using Pages = std::vector<std::uint32_t>;

  [[nodiscard]] Status check(const PageList& pages) const;
  [[nodiscard]] std::size_t pages_at_once() const;
  [[nodiscard]] bool can_overlap() const;
  [[nodiscard]] bool is_stored(const BlockKey& key) const;
  [[nodiscard]] std::byte* address(BlockId block_id) const;

  // Copies pages that are not in the host tier into new blocks of it, as many as there is room for, and starts to save them.
  [[nodiscard]] Saving begin_saving(const PageList& pages, std::span<const std::uint32_t> chosen, TimePoint deadline);
  // False if there is no room for any of them.
  [[nodiscard]] bool add_blocks(const PageList& pages, std::span<const std::uint32_t> chosen, ImmutableBlocks& held);
  void finish_saving(const PageList& pages, Saving&& saving, TimePoint deadline, std::vector<bool>& stored);

  void fetch_some(const PageList& pages, const Pages& chosen, TimePoint deadline, std::vector<bool>& fetched);
  // Holds those of the pages that are in the host tier, and starts to copy those there that are only on disk.
  [[nodiscard]] Arriving begin_arriving(const PageList& pages, std::span<const std::uint32_t> chosen,
                                        TimePoint deadline);
  // Copies pages out of the host tier and verifies them.
  void copy_out(const PageList& pages, std::span<const std::uint32_t> chosen, std::vector<bool>& fetched);

  ManagerTiers& tiers_;
  const Clock& clock_;
  Tier* const host_;
  Tier* const disk_;
  Counter& stored_;
  Counter& known_;
  Counter& not_stored_;
  Counter& fetched_;
  Counter& missed_;
  Counter& wrong_;
};

}  // namespace cairn
