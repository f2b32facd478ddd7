// CacheGroups: the layer groups of a hybrid model as the cache sees them. The layers of a group share a block table; groups
// differ in what a token needs of the tokens before it, and in the size of their blocks.
//
//   full      every block before it
//   sliding   the blocks that hold one of the last window - 1 tokens before it
//   chunked   the blocks from the start of its chunk of `window` tokens on
//   state     the one block that ends right before it: a checkpoint of a recurrent state
//
// A request has one list of keys, made once, for blocks of the common size. The keys of a group's blocks are derived from it:
// the hash at the end of the block, with the number of the group in its lowest bits. Blocks of a full group continue each other,
// as the blocks of a model without groups do. Blocks of the other groups are of use without those before them, so each has a
// key of position 0 and no parent.
//
// A boundary is a number of common blocks after which a request can go on computing: a multiple of alignment(), since every
// group has only whole blocks.
//
// Thread safety: an immutable value.
// Errors: make() refuses more than kMost groups, groups without a name or with the same one, a block size that is no multiple
// of the common one, a window of 0 where the kind has one, and one where it has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

enum class GroupKind : std::uint8_t { kFull, kSliding, kChunked, kState };
inline constexpr GroupKind kAllGroupKinds[] = {GroupKind::kFull, GroupKind::kSliding, GroupKind::kChunked,
                                               GroupKind::kState};
// "full", "sliding", "chunked", "state"
[[nodiscard]] std::string_view to_string(GroupKind kind);

struct CacheGroup {
  std::string name;
  GroupKind kind = GroupKind::kFull;
  std::uint32_t window = 0;      // tokens; of kSliding and kChunked
  std::uint32_t block_size = 0;  // tokens; a multiple of the common block size, which is what 0 stands for
  friend bool operator==(const CacheGroup&, const CacheGroup&) = default;
};

// "global:full, local:sliding:1024, ssm:state@64": name, kind, window, and the block size unless it is the common one.
// std::nullopt if the text is none of that.
[[nodiscard]] std::optional<std::vector<CacheGroup>> parse_groups(std::string_view text);
[[nodiscard]] std::string print_groups(std::span<const CacheGroup> groups);

// A block of a group, by its index in the group's block table.
struct GroupBlock {
  std::uint32_t group = 0;
  std::uint32_t block = 0;
  friend bool operator==(const GroupBlock&, const GroupBlock&) = default;
};

class CacheGroups {
 public:
  static constexpr std::size_t kMost = 8;  // as many as three bits of a key tell apart

  // No groups: the model has one full group of the common block size.
  [[nodiscard]] static Result<CacheGroups> make(std::uint32_t block_size, std::vector<CacheGroup> groups);

  // Whether there is one full group of the common block size: its keys are those of the request.
  [[nodiscard]] bool is_plain() const { return is_plain_; }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }  // the common one
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(groups_.size()); }
  [[nodiscard]] std::span<const CacheGroup> groups() const { return groups_; }
  [[nodiscard]] const CacheGroup& operator[](std::uint32_t group) const { return groups_[group]; }
  // Common blocks in a block of the group, and between two boundaries.
  [[nodiscard]] std::uint32_t each(std::uint32_t group) const { return groups_[group].block_size / block_size_; }
  [[nodiscard]] std::uint32_t alignment() const { return alignment_; }
  // The last boundary that is not beyond so many common blocks.
  [[nodiscard]] std::size_t boundary_before(std::size_t blocks) const { return blocks - blocks % alignment_; }
  // The group whose blocks stand for tokens where tokens are counted: the first full one, or the first.
  [[nodiscard]] std::uint32_t counted_group() const { return counted_; }

  // The first block of the group that is needed to compute the token after so many tokens; the number of whole blocks in
  // those tokens if none is. Never decreases with the tokens.
  [[nodiscard]] std::size_t first_needed(std::uint32_t group, std::size_t tokens) const;
  // The blocks of the group that are needed at a boundary.
  [[nodiscard]] BlockRange needed(std::uint32_t group, std::size_t boundary) const {
    return {first_needed(group, boundary * block_size_), boundary / each(group)};
  }

  // The key of a group's block. `keys` are those of the request. Requires: they reach to the end of the block.
  [[nodiscard]] BlockKey key(GroupBlock block, std::span<const BlockKey> keys) const;
  // Appends the keys of blocks begin to end - 1 of the group.
  void append_keys(std::uint32_t group, BlockRange blocks, std::span<const BlockKey> keys,
                   std::vector<BlockKey>& out) const;
  // Whether a key can be of the group: of a key that key() made, true for its group only.
  [[nodiscard]] bool may_be_of(std::uint32_t group, const BlockKey& key) const;

 private:
  CacheGroups(std::uint32_t block_size, std::vector<CacheGroup> groups);

  std::uint32_t block_size_;
  std::vector<CacheGroup> groups_;
  std::uint32_t alignment_ = 1;
  std::uint32_t counted_ = 0;
  bool is_plain_ = false;
};

}  // namespace cairn
