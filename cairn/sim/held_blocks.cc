#include "cairn/sim/held_blocks.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

Result<HeldBlocks> HeldBlocks::create(BlockPool& pool) {
  CAIRN_TRY_ASSIGN(PageArray<std::uint32_t> run_of, PageArray<std::uint32_t>::create(pool.capacity()));
  return HeldBlocks(pool, std::move(run_of));
}

std::span<const BlockId> HeldBlocks::hold(ImmutableBlocks run) {
  if (run.empty()) {
    return {};
  }
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(runs_.size()));
    runs_.emplace_back();
  }
  const std::uint32_t number = unused_.back();
  unused_.pop_back();
  for (const BlockId block_id : run.block_ids()) {
    run_of_[index_of(block_id)] = number;
  }
  runs_[number] = std::move(run);
  return runs_[number].block_ids();
}

void HeldBlocks::release(std::span<const BlockId> block_ids) {
  while (!block_ids.empty()) {
    const std::uint32_t number = run_of_[index_of(block_ids.front())];
    const std::span<const BlockId> held = runs_[number].block_ids();
    std::size_t same = 0;
    while (same < std::min(block_ids.size(), held.size()) && block_ids[same] == held[held.size() - 1 - same]) {
      ++same;
    }
    if (same > 0) {
      cut(number, held.size() - same);
    } else {
      const auto found = std::ranges::find(held, block_ids.front());
      CAIRN_CHECK(found != held.end(), "a block that is released is held");
      release_inside(number, static_cast<std::size_t>(found - held.begin()));
      same = 1;
    }
    block_ids = block_ids.subspan(same);
  }
}

void HeldBlocks::release_inside(std::uint32_t number, std::size_t place) {
  // The blocks get a second reference before the run releases theirs, so they stay in use throughout.
  for (auto i = static_cast<std::uint32_t>(place + 1); i < runs_[number].size(); ++i) {
    const BlockKey key = runs_[number].key(i);
    ImmutableBlocks one = pool_->match_prefix({&key, 1});
    CAIRN_CHECK(one.size() == 1, "a block in use is found under its key");
    hold(std::move(one));
  }
  cut(number, place);
}

void HeldBlocks::cut(std::uint32_t number, std::size_t count) {
  if (count > 0) {
    runs_[number].release_tail(static_cast<std::uint32_t>(count));
    return;
  }
  runs_[number] = ImmutableBlocks();
  unused_.push_back(number);
}

}  // namespace cairn::sim::internal
