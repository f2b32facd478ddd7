#include "cairn/manager/host_size.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

HostSize::HostSize(Tier& host, std::uint32_t blocks, bool pages_may_go)
    : host_(host), pages_may_go_(pages_may_go && host.layout()->kind() == MemoryKind::kSystem) {
  set(blocks);
}

void HostSize::set(std::uint32_t blocks) {
  excess_ = host_.pool()->capacity() - blocks;
  if (withheld() > excess_) {
    const MutableBlocks freed = withheld_->take_front(withheld() - excess_);
  }
  advance();
}

bool HostSize::advance() {
  const std::uint32_t want = to_withhold();
  const std::uint32_t most = want == 0 ? 0 : std::min(want, host_.pool()->counts().available());
  if (most == 0) {
    return false;
  }
  // Others may have taken them since they were counted; then the next call tries again.
  Result<MutableBlocks> taken = host_.pool()->allocate(most);
  if (!taken) {
    return false;
  }
  give_pages_back(*taken);
  if (!withheld_) {
    withheld_.emplace(*std::move(taken));
  } else {
    CAIRN_CHECK(withheld_->append(*std::move(taken)).has_value(), "blocks of one pool can be joined");
  }
  return true;
}

// Only pages that lie wholly within a block. If the system does not take them, they are used again when the tier grows.
void HostSize::give_pages_back(const MutableBlocks& blocks) const {
  const BlockLayout& layout = *host_.layout();
  if (!pages_may_go_) {
    return;
  }
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const LayerPlace& place = layout.layers().front();
  const auto base = reinterpret_cast<std::uintptr_t>(layout.regions()[place.region]->base()) + place.offset;
  for (const BlockId block_id : blocks.block_ids()) {
    const std::uint64_t begin = base + index_of(block_id) * place.block_step;
    const std::uint64_t first = (begin + page - 1) / page * page;
    const std::uint64_t end = (begin + layout.shape().block_bytes()) / page * page;
    if (first < end) {
      (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
    }
  }
}

}  // namespace cairn
