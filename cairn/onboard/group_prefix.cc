#include "cairn/onboard/group_prefix.h"

#include <algorithm>
#include <optional>

#include "cairn/base/check.h"

namespace cairn {
namespace {

// What is known of the blocks of one group. Boundaries are asked for in decreasing order.
class GroupSearch {
 public:
  GroupSearch(const CacheGroups& groups, std::uint32_t group, std::size_t local,
              const std::function<bool(GroupBlock)>& has)
      : groups_(groups), group_(group), each_(groups.each(group)), local_(local / each_), has_(has) {}

  // Whether the group can go on at this boundary, which is beyond `local`; else a boundary, not yet aligned, beyond which no
  // lower one is usable either.
  std::optional<std::size_t> limit_of(std::size_t boundary) {
    const BlockRange needed = groups_.needed(group_, boundary);
    if (groups_[group_].kind == GroupKind::kFull) {
      return full_limit(needed.end);
    }
    // From the end down to what an earlier boundary has shown to be there.
    const std::size_t begin = std::max(needed.begin, local_);
    for (std::size_t block = needed.end; block-- > begin;) {
      if (block >= there_.begin && block < there_.end) {
        block = there_.begin;
        continue;
      }
      if (!has(block)) {
        there_ = {};
        return block * each_;
      }
      // Blocks are asked for downwards: a run of those that are there grows at its lower end, or begins anew.
      there_ = block + 1 == there_.begin ? BlockRange{block, there_.end} : BlockRange{block, block + 1};
    }
    return std::nullopt;
  }

 private:
  std::optional<std::size_t> full_limit(std::size_t end) {
    while (!full_ends_ && full_ < end) {
      if (full_ < local_ || has(full_)) {
        ++full_;
      } else {
        full_ends_ = true;
      }
    }
    return full_ < end ? std::optional(full_ * each_) : std::nullopt;
  }
  [[nodiscard]] bool has(std::size_t block) const { return has_({group_, static_cast<std::uint32_t>(block)}); }

  const CacheGroups& groups_;
  const std::uint32_t group_;
  const std::size_t each_;
  const std::size_t local_;  // blocks that are there
  const std::function<bool(GroupBlock)>& has_;
  std::size_t full_ = 0;  // blocks from the first on that are there
  bool full_ends_ = false;
  BlockRange there_ = {};  // the lowest blocks that were found to be there
};

}  // namespace

std::size_t longest_usable_prefix(const CacheGroups& groups, std::size_t local, std::size_t most,
                                  const std::function<bool(GroupBlock)>& has) {
  CAIRN_CHECK(local % groups.alignment() == 0, "what is there ends at a boundary");
  std::vector<GroupSearch> searches;
  searches.reserve(groups.size());
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    searches.emplace_back(groups, group, local, has);
  }
  std::size_t boundary = std::max(local, groups.boundary_before(most));
  // Groups in a row that do not object.
  for (std::size_t agreed = 0, next = 0; boundary > local && agreed < searches.size();
       next = (next + 1) % searches.size()) {
    if (const std::optional<std::size_t> limit = searches[next].limit_of(boundary)) {
      boundary = std::max(local, groups.boundary_before(*limit));
      agreed = 0;
    } else {
      ++agreed;
    }
  }
  return boundary;
}

std::vector<GroupBlock> blocks_to_load(const CacheGroups& groups, std::size_t local, std::size_t boundary) {
  std::vector<GroupBlock> blocks;
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    const BlockRange needed = groups.needed(group, boundary);
    for (std::size_t block = std::max(needed.begin, local / groups.each(group)); block < needed.end; ++block) {
      blocks.push_back({group, static_cast<std::uint32_t>(block)});
    }
  }
  std::ranges::stable_sort(blocks, {}, [&groups](const GroupBlock& block) {
    return (std::size_t{block.block} + 1) * groups.each(block.group);
  });
  return blocks;
}

std::size_t usable_after_load(const CacheGroups& groups, std::size_t local, std::size_t boundary, std::size_t loaded) {
  const std::vector<GroupBlock> wanted = blocks_to_load(groups, local, boundary);
  if (loaded >= wanted.size()) {
    return boundary;
  }
  const auto came = std::span(wanted).first(loaded);
  // Of each group a run of blocks came.
  std::vector<BlockRange> runs(groups.size());
  for (const GroupBlock& block : came) {
    BlockRange& run = runs[block.group];
    run.begin = run.empty() ? block.block : run.begin;
    run.end = std::size_t{block.block} + 1;
  }
  return longest_usable_prefix(groups, local, boundary, [&runs](GroupBlock block) {
    return block.block >= runs[block.group].begin && block.block < runs[block.group].end;
  });
}

}  // namespace cairn
