#include "cairn/tokens/engine_key.h"

#include <algorithm>

#include "cairn/base/str_cat.h"
#include "cairn/hash/sha256.h"
#include "cairn/tokens/adopted_run.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/bytes.h"
#include "cairn/tokens/cbor_writer.h"

namespace cairn {
namespace {

using Writer = internal::CborWriter<internal::Sha256>;

// Unsigned, so that the difference of two offsets does not overflow.
std::uint64_t distance(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

bool ends_after(const VllmMmItem& item, std::int64_t place) {
  return item.offset > place || distance(item.offset, place) < item.length;
}

// The items that overlap [begin, end): consecutive ones, because items are sorted.
std::span<const VllmMmItem> overlapping(std::span<const VllmMmItem> items, std::int64_t begin, std::int64_t end) {
  const auto first = std::ranges::find_if(items, [&](const VllmMmItem& item) { return ends_after(item, begin); });
  const auto last = std::find_if(first, items.end(), [&](const VllmMmItem& item) { return item.offset >= end; });
  return {first, last};
}

void write_extras(Writer& writer, const VllmExtras& extras, std::span<const VllmMmItem> items, std::int64_t offset) {
  const bool tagged = extras.style == VllmExtras::Style::kTagged;
  const bool lora = !extras.lora_name.empty();
  const bool salt = offset == 0 && !extras.cache_salt.empty();
  const std::size_t count = items.size() + (lora ? 1 : 0) + (salt ? 1 : 0);
  if (count == 0) {
    writer.null();
    return;
  }
  writer.array(count);
  if (lora) {
    if (tagged) {
      writer.array(2);
      writer.text("lora");
    }
    writer.text(extras.lora_name);
  }
  for (const VllmMmItem& item : items) {
    writer.array(tagged ? 3 : 2);
    if (tagged) {
      writer.text("mm");
    }
    writer.text(item.identifier);
    writer.integer(item.offset - offset);
  }
  if (salt) {
    writer.text(extras.cache_salt);
  }
}

Digest hash_one(internal::Sha256& hash, const Digest& parent, std::span<const Token> tokens, const VllmExtras& extras,
                std::span<const VllmMmItem> items, std::int64_t offset) {
  hash.begin();
  {
    Writer writer(hash);
    writer.array(3);
    writer.bytes(parent.bytes);
    writer.array(tokens.size());
    for (const Token token : tokens) {
      writer.integer(token);
    }
    write_extras(writer, extras, items, offset);
  }
  return hash.finish();
}

Status check_items(std::span<const VllmMmItem> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool in_order = i == 0 || (items[i].offset >= items[i - 1].offset &&
                                     distance(items[i - 1].offset, items[i].offset) >= items[i - 1].length);
    if (items[i].length == 0 || items[i].offset < 0 || !in_order) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("multimodal item ", i, " (offset ", items[i].offset, ", length ", items[i].length,
                          ") is empty, begins before the sequence or before the end of the item before it; give items ",
                          "sorted by offset"));
    }
  }
  return Status();
}

std::uint64_t last_word(std::span<const std::byte> digest) { return internal::load_be64(digest.last<8>()); }

}  // namespace

Digest vllm_none_hash(std::string_view seed) {
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  hash.begin();
  {
    Writer writer(hash);
    writer.text(seed);
  }
  return hash.finish();
}

Digest vllm_block_digest(const Digest& parent, std::span<const Token> tokens, const VllmExtras& extras,
                         std::int64_t offset) {
  const auto end = offset + static_cast<std::int64_t>(tokens.size());
  return hash_one(internal::Sha256::of_this_thread(), parent, tokens, extras, overlapping(extras.mm_items, offset, end),
                  offset);
}

Result<std::size_t> vllm_hash_blocks(std::span<const Token> tokens, const VllmHashing& hashing,
                                     const std::optional<VllmParent>& parent, std::span<Digest> digests) {
  CAIRN_TRY(internal::check_block_size(hashing.block_size));
  const std::size_t count = tokens.size() / hashing.block_size;
  CAIRN_TRY(internal::check_room(count, digests.size(), "digests"));
  const std::uint64_t first = parent ? std::uint64_t{parent->position} + 1 : 0;
  CAIRN_TRY(internal::check_positions(first, count));
  CAIRN_TRY(check_items(hashing.extras.mm_items));

  internal::Sha256& hash = internal::Sha256::of_this_thread();
  std::span<const VllmMmItem> items = hashing.extras.mm_items;
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<std::int64_t>((first + i) * hashing.block_size);
    while (!items.empty() && !ends_after(items.front(), offset)) {
      items = items.subspan(1);
    }
    const Digest& previous = i > 0 ? digests[i - 1] : parent ? parent->digest : hashing.none_hash;
    digests[i] = hash_one(hash, previous, tokens.subspan(i * hashing.block_size, hashing.block_size), hashing.extras,
                          overlapping(items, offset, offset + hashing.block_size), offset);
  }
  return count;
}

std::uint64_t vllm_event_hash(const Digest& digest) { return last_word(digest.bytes); }

Result<std::size_t> vllm_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                              std::span<const Digest> digests, std::span<BlockKey> keys) {
  return internal::adopt_digests(hasher, KeyScheme::kVllm, parent, digests, keys);
}

Result<BlockKey> vllm_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                            std::span<const std::byte> digest, std::uint64_t position) {
  return internal::adopt_digest(hasher, KeyScheme::kVllm, parent, digest, position);
}

}  // namespace cairn
