// The longest prefix of a hybrid model that can be used: the last boundary at which every group has what it needs. Pure
// functions: they know no pools, threads or clocks.
//
// A group that lacks a block shortens the prefix, and a shorter prefix may need blocks of another group that the longer one
// did not: groups are asked in turn until none objects. Each block of a group is asked for once at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/tokens/cache_groups.h"

namespace cairn {

// The last boundary from `local` to `most` at which every group has the blocks that it needs. Both are in common blocks; what
// is needed at `local`, which is a boundary, is there already. `has` says whether a block that ends beyond `local` is there.
[[nodiscard]] std::size_t longest_usable_prefix(const CacheGroups& groups, std::size_t local, std::size_t most,
                                                const std::function<bool(GroupBlock)>& has);

// The blocks that have to be loaded to go on at `boundary`, if what is needed at `local` is there: those that end first are
// first. So a load that brings only the first of them has brought all that a shorter prefix needs of these.
[[nodiscard]] std::vector<GroupBlock> blocks_to_load(const CacheGroups& groups, std::size_t local,
                                                     std::size_t boundary);

// The boundary that can be used if, of blocks_to_load(groups, local, boundary), only the first `loaded` came.
[[nodiscard]] std::size_t usable_after_load(const CacheGroups& groups, std::size_t local, std::size_t boundary,
                                            std::size_t loaded);

}  // namespace cairn
