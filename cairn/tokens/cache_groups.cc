#include "cairn/tokens/cache_groups.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

constexpr std::uint32_t kMostAlignment = 1U << 16U;
constexpr std::uint64_t kGroupBits = CacheGroups::kMost - 1;
// Odd, so that different positions change different bits.
constexpr std::uint64_t kPositionFactor = 0x9E3779B97F4A7C15U;

bool has_window(GroupKind kind) { return kind == GroupKind::kSliding || kind == GroupKind::kChunked; }

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? std::optional(number) : std::nullopt;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

// "local:sliding:1024@32"
std::optional<CacheGroup> parse_group(std::string_view text) {
  CacheGroup group;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    const std::optional<std::uint32_t> size = parse_number(text.substr(at + 1));
    if (!size) {
      return std::nullopt;
    }
    group.block_size = *size;
    text = text.substr(0, at);
  }
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos || !is_name(text.substr(0, first))) {
    return std::nullopt;
  }
  group.name = text.substr(0, first);
  text.remove_prefix(first + 1);
  const std::string_view kind = text.substr(0, text.find(':'));
  const auto found = std::ranges::find(kAllGroupKinds, kind, [](GroupKind one) { return to_string(one); });
  if (found == std::end(kAllGroupKinds) || has_window(*found) != (kind.size() < text.size())) {
    return std::nullopt;
  }
  group.kind = *found;
  if (has_window(group.kind)) {
    const std::optional<std::uint32_t> window = parse_number(text.substr(kind.size() + 1));
    if (!window) {
      return std::nullopt;
    }
    group.window = *window;
  }
  return group;
}

Status check(std::span<const CacheGroup> before, const CacheGroup& group, std::uint32_t block_size) {
  if (!is_name(group.name)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("group ", before.size(), " is called '", group.name,
                                                     "'; give a name of letters, digits, '-', '_' and '.'"));
  }
  if (std::ranges::find(before, group.name, &CacheGroup::name) != before.end()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("two groups are called '", group.name, "'"));
  }
  if (has_window(group.kind) != (group.window > 0)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("group '", group.name, "' is ", to_string(group.kind), " and has a window of ", group.window,
                        " tokens; sliding and chunked groups have one, others do not"));
  }
  if (group.block_size % block_size != 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("group '", group.name, "' has blocks of ", group.block_size,
                                                     " tokens; give a multiple of block_size, which is ", block_size));
  }
  return {};
}

}  // namespace

std::string_view to_string(GroupKind kind) {
  constexpr std::string_view kNames[] = {"full", "sliding", "chunked", "state"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<std::vector<CacheGroup>> parse_groups(std::string_view text) {
  std::vector<CacheGroup> groups;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    std::optional<CacheGroup> group = parse_group(one);
    if (!group) {
      return std::nullopt;
    }
    groups.push_back(*std::move(group));
  }
  return groups;
}

std::string print_groups(std::span<const CacheGroup> groups) {
  std::string text;
  for (const CacheGroup& group : groups) {
    text += str_cat(text.empty() ? "" : ", ", group.name, ":", to_string(group.kind));
    text += has_window(group.kind) ? str_cat(":", group.window) : std::string();
    text += group.block_size != 0 ? str_cat("@", group.block_size) : std::string();
  }
  return text;
}

Result<CacheGroups> CacheGroups::make(std::uint32_t block_size, std::vector<CacheGroup> groups) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "the block size is 0; give the tokens of a block");
  }
  if (groups.size() > kMost) {
    return fail(ErrorCode::kOutOfRange, str_cat(groups.size(), " groups; a model has at most ", kMost));
  }
  if (groups.empty()) {
    groups.push_back({.name = "all"});
  }
  std::uint64_t alignment = 1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    CAIRN_TRY(check(std::span(groups).first(i), groups[i], block_size));
    groups[i].block_size = groups[i].block_size == 0 ? block_size : groups[i].block_size;
    alignment = std::lcm(alignment, std::uint64_t{groups[i].block_size / block_size});
    if (alignment > kMostAlignment) {
      return fail(ErrorCode::kOutOfRange,
                  str_cat("the block sizes of the groups have a least common multiple of more than ", kMostAlignment,
                          " blocks, so that hardly any prefix could be used; give sizes that divide each other"));
    }
  }
  return CacheGroups(block_size, std::move(groups));
}

CacheGroups::CacheGroups(std::uint32_t block_size, std::vector<CacheGroup> groups)
    : block_size_(block_size), groups_(std::move(groups)) {
  for (std::uint32_t group = 0; group < size(); ++group) {
    alignment_ = std::lcm(alignment_, each(group));
  }
  const auto full = std::ranges::find(groups_, GroupKind::kFull, &CacheGroup::kind);
  counted_ = full != groups_.end() ? static_cast<std::uint32_t>(full - groups_.begin()) : 0;
  is_plain_ = size() == 1 && groups_[0].kind == GroupKind::kFull && each(0) == 1;
}

std::size_t CacheGroups::first_needed(std::uint32_t group, std::size_t tokens) const {
  const CacheGroup& of = groups_[group];
  const std::size_t whole = tokens / of.block_size;
  switch (of.kind) {
    case GroupKind::kFull:
      return 0;
    case GroupKind::kSliding:
      // The token itself is one of the window.
      return tokens < of.window ? 0 : std::min<std::size_t>(whole, (tokens - of.window + 1) / of.block_size);
    case GroupKind::kChunked:
      return std::min<std::size_t>(whole, tokens / of.window * of.window / of.block_size);
    case GroupKind::kState:
      return whole > 0 ? whole - 1 : 0;
  }
  return 0;
}

BlockKey CacheGroups::key(GroupBlock block, std::span<const BlockKey> keys) const {
  const std::size_t last = (std::size_t{block.block} + 1) * each(block.group) - 1;
  const BlockKey& common = keys[last];
  if (is_plain_) {
    return common;
  }
  const auto marked = [&block](SequenceHash hash) {
    return SequenceHash{(value_of(hash) & ~kGroupBits) | block.group};
  };
  if (groups_[block.group].kind == GroupKind::kFull && block.block > 0) {
    const BlockKey& before = keys[last - each(block.group)];
    return BlockKey::make_checked(block.block, marked(common.sequence_hash()), marked(before.sequence_hash()));
  }
  // All bits that the common key has beyond its hash, whatever its position.
  const std::uint64_t more = common.low_word() ^ (std::uint64_t{common.position()} * kPositionFactor);
  return BlockKey::wide_root(marked(common.sequence_hash()), more);
}

void CacheGroups::append_keys(std::uint32_t group, BlockRange blocks, std::span<const BlockKey> keys,
                              std::vector<BlockKey>& out) const {
  out.reserve(out.size() + blocks.size());
  for (std::size_t block = blocks.begin; block < blocks.end; ++block) {
    out.push_back(key({group, static_cast<std::uint32_t>(block)}, keys));
  }
}

bool CacheGroups::may_be_of(std::uint32_t group, const BlockKey& key) const {
  return is_plain_ || (value_of(key.sequence_hash()) & kGroupBits) == group;
}

}  // namespace cairn
