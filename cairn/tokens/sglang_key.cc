#include "cairn/tokens/engine_key.h"

#include <bit>

#include "cairn/hash/sha256.h"
#include "cairn/tokens/adopted_run.h"
#include "cairn/tokens/block_run.h"
#include "cairn/tokens/bytes.h"

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens and lengths are hashed as little-endian words");

void add_text(internal::Sha256& hash, std::string_view text) { hash.add(std::as_bytes(std::span(text))); }

void add_optional(internal::Sha256& hash, std::optional<std::string_view> text) {
  const std::byte present{text.has_value()};
  hash.add({&present, 1});
  if (text) {
    const std::uint64_t size = text->size();
    hash.add(std::as_bytes(std::span(&size, 1)));
    add_text(hash, *text);
  }
}

std::uint64_t first_word(std::span<const std::byte> digest) { return internal::load_be64(digest.first<8>()); }

}  // namespace

std::optional<Digest> sglang_storage_seed(std::optional<std::string_view> extra_key,
                                          std::optional<std::string_view> cache_salt) {
  if (!extra_key && !cache_salt) {
    return std::nullopt;
  }
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  hash.begin();
  add_text(hash, "sglang-cache-namespace-v1");
  add_optional(hash, extra_key);
  add_optional(hash, cache_salt);
  return hash.finish();
}

Result<std::size_t> sglang_hash_pages(std::span<const Token> tokens, std::uint32_t page_size,
                                      const std::optional<Digest>& prior, std::span<Digest> digests) {
  CAIRN_TRY(internal::check_block_size(page_size));
  const std::size_t count = tokens.size() / page_size;
  CAIRN_TRY(internal::check_room(count, digests.size(), "digests"));
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  const Digest* previous = prior ? &*prior : nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    hash.begin();
    if (previous != nullptr) {
      hash.add(previous->bytes);
    }
    hash.add(std::as_bytes(tokens.subspan(i * page_size, page_size)));
    digests[i] = hash.finish();
    previous = &digests[i];
  }
  return count;
}

std::int64_t sglang_event_hash(const Digest& digest) { return static_cast<std::int64_t>(first_word(digest.bytes)); }

Result<std::size_t> sglang_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                std::span<const Digest> digests, std::span<BlockKey> keys) {
  return internal::adopt_digests(hasher, KeyScheme::kSglang, parent, digests, keys);
}

Result<BlockKey> sglang_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                              std::span<const std::byte> digest, std::uint64_t position) {
  return internal::adopt_digest(hasher, KeyScheme::kSglang, parent, digest, position);
}

}  // namespace cairn
